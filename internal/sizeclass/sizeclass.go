// Package sizeclass rounds numbers of tokens up to few sizes, so that few kernels and graphs serve all of them.
package sizeclass

// fine is the size from which there are two sizes per power of two. Below, a step takes about as long with one size fewer.
const fine = 32

// Of returns the smallest size that is at least n: a power of two, or from 32 on also one and a half times one. The next size
// is Of(size + 1).
func Of(n int) int {
	size := 1
	for size < n {
		if half := size + size/2; size >= fine && half >= n {
			return half
		}
		size *= 2
	}
	return size
}
