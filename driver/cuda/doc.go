// Package cuda runs PTX on an NVIDIA GPU through the driver's own library, libcuda,
// with no cgo and no CUDA toolkit.
package cuda
