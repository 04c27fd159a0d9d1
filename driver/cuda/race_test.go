//go:build race

package cuda

// raceDetector disables the count of allocations and shortens loops: under the race detector
// pools drop items at random and callbacks into Go take milliseconds.
const raceDetector = true
