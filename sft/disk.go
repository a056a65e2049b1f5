package sft

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FreeDisk returns the bytes that are free on the disk of a path, which need not
// exist yet.
func FreeDisk(path string) (int64, error) {
	for {
		if _, err := os.Stat(path); err == nil {
			break
		}
		parent := filepath.Dir(path)
		if parent == path {
			break
		}
		path = parent
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("ask how much of the disk of %s is free: %w", path, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
