// Package cli is what the commands of ccmed have in common, whatever they measure: settings
// from the environment and from ccmed.yaml with what they may set, errors that name what was
// meant, help that fits a terminal, values that shells complete, the schema of the settings,
// pages of the documentation, interrupts, and the seal of command lines in run folders.
//
//	given, found, err := cli.Settings{Getenv: os.Getenv}.Apply(cmd)
package cli
