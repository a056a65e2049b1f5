package llamacpp

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/infer"
)

// checkGGUF returns an error unless the file begins like a GGUF file of version
// 2 or 3 in this machine's byte order (ggml/docs/gguf.md).
func checkGGUF(path string) error {
	f, err := disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &infer.MissingError{What: "the model file is missing", Err: err, Fix: "name an existing GGUF file"}
	}
	if err != nil {
		return fmt.Errorf("llamacpp: opening the model: %w", err)
	}
	defer f.Close()
	var head struct {
		Magic   [4]byte
		Version uint32
	}
	if err := binary.Read(f, binary.LittleEndian, &head); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("llamacpp: %s is not a GGUF file: it is too short", path)
		}
		return fmt.Errorf("llamacpp: reading the model: %w", err)
	}
	if string(head.Magic[:]) != "GGUF" {
		return fmt.Errorf("llamacpp: %s is not a GGUF file: it begins with %q", path, head.Magic[:])
	}
	if head.Version != 2 && head.Version != 3 {
		return fmt.Errorf("llamacpp: %s has GGUF version %d; versions 2 and 3 can be read", path, head.Version)
	}
	return nil
}

// knownDigest is a remembered digest, valid while size and time are the same.
type knownDigest struct {
	Size    int64     `json:"size"`
	ModTime time.Time `json:"mod_time"`
	Digest  string    `json:"digest"`
}

// fileDigest returns "sha256:" and the hexadecimal SHA-256 of a file. It
// remembers it in the cache folder, by path, size and modification time:
// hashing takes seconds a gigabyte.
func fileDigest(ctx context.Context, path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("llamacpp: %w", err)
	}
	st, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("llamacpp: %w", err)
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	store := filepath.Join(cache, "digests.json")
	known := readDigests(store)
	if k, ok := known[path]; ok && k.Size == st.Size() && k.ModTime.Equal(st.ModTime()) {
		return k.Digest, nil
	}
	f, err := disk.Open(path)
	if err != nil {
		return "", fmt.Errorf("llamacpp: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, &contextReader{ctx, f}); err != nil {
		return "", fmt.Errorf("llamacpp: hashing %s: %w", path, err)
	}
	digest := "sha256:" + hex.EncodeToString(h.Sum(nil))
	known[path] = knownDigest{st.Size(), st.ModTime(), digest}
	// A cache that cannot be written costs the next start some time, no more.
	_ = writeDigests(store, known)
	return digest, nil
}

// readDigests returns an empty map for a store that is missing or broken.
func readDigests(store string) map[string]knownDigest {
	known := map[string]knownDigest{}
	if b, err := disk.ReadFile(store, disk.MaxText); err != nil || json.Unmarshal(b, &known) != nil || known == nil {
		return map[string]knownDigest{}
	}
	return known
}

func writeDigests(store string, known map[string]knownDigest) error {
	b, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(store), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(store), ".digests-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename, as it should
	_, err = f.Write(b)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), store)
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
