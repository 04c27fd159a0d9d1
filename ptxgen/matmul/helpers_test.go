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

// launcher makes a launch of a kernel with changed arguments.
func launcher[A any](s interface {
	kernel.Spec
	Launch(*ptx.Kernel, A) (ptx.Launch, error)
}, a A, change func(*A)) func(*testing.T) (ptx.Launch, error) {
	return func(t *testing.T) (ptx.Launch, error) {
		if change != nil {
			change(&a)
		}
		return s.Launch(build(t, s), a)
	}
}
