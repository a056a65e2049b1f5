package main

import (
	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
)

// docsCmd writes what describes the program: for package makers, editors and the
// documentation of this project.
func (a *app) docsCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "docs", Short: "Write man pages, Markdown pages and the schema of ccmed.yaml"}
	man := &cobra.Command{
		Use: "man DIR", Short: "Write a man page for every command", Args: cobra.ExactArgs(1), Example: "  ccmed docs man share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error { return cli.WriteMan(cmd.Root(), args[0]) },
	}
	markdown := &cobra.Command{
		Use: "markdown DIR", Short: "Write a Markdown page for every group of commands", Args: cobra.ExactArgs(1), Example: "  ccmed docs markdown docs/commands",
		RunE: func(cmd *cobra.Command, args []string) error { return cli.WriteMarkdown(cmd.Root(), args[0]) },
	}
	schema := &cobra.Command{
		Use: "config-schema", Short: "Print the JSON Schema of ccmed.yaml", Args: cobra.NoArgs, Example: "  ccmed docs config-schema",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := cli.ConfigSchema(cmd.Root(), enumerations())
			if err == nil {
				_, err = a.stdout.Write(b)
			}
			return err
		},
	}
	cmd.AddCommand(man, markdown, schema)
	return cmd
}
