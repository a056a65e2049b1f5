//go:build !race

package main

import "testing"

const raceEnabled = false

// TestConcurrentScripts: the scripts that the race detector watches are there.
func TestConcurrentScripts(t *testing.T) {
	for _, file := range concurrentScripts() {
		fileText(t, file)
	}
}
