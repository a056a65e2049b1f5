package cli

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

// Sealing is a secret of this user's on this machine. With it the program tells the
// command lines that it wrote into run folders itself from those that came with a
// folder made elsewhere, or were changed.
type Sealing []byte

// SealKey reads the secret out of the cache folder, or makes it.
func SealKey() (Sealing, error) {
	dir, err := llamacpp.CacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache folder: %w", err)
	}
	file := filepath.Join(dir, "seal.key")
	b, err := disk.ReadEntry(file, 64)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the cache folder: %w", err)
		}
		if err := makeKey(dir, file); err != nil {
			return nil, fmt.Errorf("keep a key for the commands of runs: %w", err)
		}
		b, err = disk.ReadEntry(file, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key for the commands of runs: %w", err)
	}
	if len(b) != 32 {
		return nil, fmt.Errorf("%s is no key; remove it", file)
	}
	return Sealing(b), nil
}

// makeKey writes a new key, unless another process has just done so.
func makeKey(dir, file string) error {
	key := make([]byte, 32)
	_, _ = rand.Read(key)                     // crypto/rand never fails
	f, err := os.CreateTemp(dir, ".seal.key") // readable for the user alone
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // the key is its other name
	_, err = f.Write(key)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), file); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Seal is the mark of a command line and the folder that it was given in.
func (k Sealing) Seal(command []string, dir string) string {
	text, err := json.Marshal([]any{command, dir})
	if err != nil {
		return "" // texts are always JSON
	}
	mac := hmac.New(sha256.New, k)
	mac.Write(text)
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}

// Holds reports whether the mark is of that command line and folder.
func (k Sealing) Holds(mark string, command []string, dir string) bool {
	return hmac.Equal([]byte(mark), []byte(k.Seal(command, dir)))
}
