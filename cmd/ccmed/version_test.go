package main

import (
	"runtime/debug"
	"testing"
)

// TestVersion: a checkout's commit, and what go install PACKAGE@VERSION was asked for.
func TestVersion(t *testing.T) {
	t.Parallel()
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	changed := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, c := range []struct {
		release, module string
		settings        []debug.BuildSetting
		want            string
	}{
		{"dev", "(devel)", nil, "dev"},
		{"dev", "(devel)", []debug.BuildSetting{commit}, "dev 0123456789ab"},
		{"0.9.0", "(devel)", []debug.BuildSetting{commit, changed}, "0.9.0 0123456789ab+"},
		{"0.9.0", "v0.9.1-0.20260102030405-0123456789ab", []debug.BuildSetting{commit}, "0.9.0 0123456789ab"}, // as go build stamps a checkout
		{"dev", "v0.9.0", nil, "0.9.0"},
		{"dev", "v0.9.1-0.20260102030405-0123456789ab", nil, "0.9.1-0.20260102030405-0123456789ab"},
		{"dev", "", nil, "dev"},
	} {
		if got := versionOf(c.release, &debug.BuildInfo{Main: debug.Module{Version: c.module}, Settings: c.settings}); got != c.want {
			t.Errorf("%s, module %s, %v: %q, want %q", c.release, c.module, c.settings, got, c.want)
		}
	}
	if got := versionOf("dev", nil); got != "dev" {
		t.Errorf("without build information: %q", got)
	}
}
