package driver

import (
	"errors"
	"fmt"
	"testing"
)

func TestError(t *testing.T) {
	for _, c := range []struct {
		name string
		err  Error
		want string
	}{
		{"only a call", Error{Op: "Open"}, "Open"},
		{"a call and a kind", Error{Op: "Open", Kind: ErrNoDevice}, "Open (no such device)"},
		{"all fields", Error{Op: "cuMemAlloc_v2", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Kind: ErrOutOfMemory, Detail: "5 bytes"},
			"cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of device memory): 5 bytes"},
		{"no kind", Error{Op: "cuInit", Name: "CUDA_ERROR_UNKNOWN", Detail: "libcuda.so.1"}, "cuInit: CUDA_ERROR_UNKNOWN: libcuda.so.1"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		wrapped := fmt.Errorf("wrapped: %w", &c.err)
		for _, kind := range []error{ErrNoDriver, ErrNoDevice, ErrOutOfMemory, ErrDeviceLost} {
			if errors.Is(wrapped, kind) != (c.err.Kind == kind) {
				t.Errorf("%s: is %v: %v", c.name, kind, errors.Is(wrapped, kind))
			}
		}
	}
}
