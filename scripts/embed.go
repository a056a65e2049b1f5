// Package scripts carries the Python programs that train and convert models, so
// that an installed binary needs no checkout to run them.
package scripts

import "embed"

// Files holds the programs, and the lists of packages beside them.
//
//go:embed *dual_head.py environment.py gguf_checkpoint.py requirements-train.in requirements-train.txt requirements-gguf.txt
var Files embed.FS

// Lists of packages among Files, in pip's format. Training names the packages that
// the programs import, each with its version. TrainingLock and ConverterLock list
// everything that is installed, with the hashes of its files
// (lock_requirements.sh).
const (
	Training      = "requirements-train.in"
	TrainingLock  = "requirements-train.txt"
	ConverterLock = "requirements-gguf.txt" // llama.cpp's converter of checkpoints
)
