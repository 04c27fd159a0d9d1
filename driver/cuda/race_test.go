//go:build race

package cuda

// Under the race detector pools drop items at random and calls back into Go take
// milliseconds, so allocations are not counted and loops are short.
const raceDetector = true
