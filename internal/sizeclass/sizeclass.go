// Package sizeclass rounds numbers of tokens up to few sizes, so that few kernels and graphs serve all of them.
package sizeclass

// twoPerOctave is the size from which there are two sizes per power of two. Below it, a step takes about as long for twice as
// many tokens.
const twoPerOctave = 32

// Of returns the smallest size that is at least n: a power of two, or one and a half times a power of two that is at least 32.
// The next size is Of(size + 1).
func Of(n int) int {
	size := 1
	for size < n {
		if half := size + size/2; size >= twoPerOctave && half >= n {
			return half
		}
		size *= 2
	}
	return size
}
