// Package scripts carries the Python programs that train and convert models, so
// that an installed binary needs no checkout to run them.
package scripts

import "embed"

// Files holds the programs, and Requirements beside them.
//
//go:embed *dual_head.py environment.py gguf_checkpoint.py requirements-train.txt
var Files embed.FS

// Requirements names the file of Files that lists the packages of a training
// environment, in pip's format, each with its version.
const Requirements = "requirements-train.txt"
