//go:build race

package stats_test

// raceEnabled is true where the race detector makes every draw many times slower.
const raceEnabled = true
