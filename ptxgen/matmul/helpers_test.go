package matmul_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// build builds a kernel.
func build(t *testing.T, s kernel.Spec) *ptx.Kernel {
	t.Helper()
	k, err := s.Build()
	if err != nil {
		t.Fatalf("%s: %v", s.Name(), err)
	}
	return k
}
