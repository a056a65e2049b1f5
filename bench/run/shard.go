package run

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// shard is part i of n; the zero value holds everything.
type shard struct{ i, n int }

func parseShard(s string) (shard, error) {
	if s == "" {
		return shard{}, nil
	}
	a, b, _ := strings.Cut(s, "/")
	i, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || i < 1 || i > n {
		return shard{}, fmt.Errorf("shard %q: it must be i/n with 1 <= i <= n, for example 2/4", s)
	}
	return shard{i, n}, nil
}

// holds reports whether a group belongs to the shard. The hash makes the parts
// alike however the items are ordered, and the same on every machine.
func (s shard) holds(group string) bool {
	if s.n == 0 {
		return true
	}
	sum := sha256.Sum256([]byte(group))
	return binary.BigEndian.Uint64(sum[:8])%uint64(s.n) == uint64(s.i-1)
}
