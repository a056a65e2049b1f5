// Command ccmed measures when and how well local language models mediate
// cross-cultural conflict. See `ccmed help` and the docs folder.
package main

import (
	"os"
	"time"
)

func main() {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, now: time.Now, exit: os.Exit}
	os.Exit(a.main(os.Args[1:]))
}
