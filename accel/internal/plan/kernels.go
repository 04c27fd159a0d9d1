package plan

import (
	"sync"

	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// kernels caches kernels by name for all engines of the process: func() (*ptx.Kernel, error).
// A kernel depends on its spec alone.
var kernels sync.Map

// kernelOf builds a kernel once.
func kernelOf(s kernel.Spec) (*ptx.Kernel, error) {
	name := s.Name()
	build, ok := kernels.Load(name)
	if !ok {
		build, _ = kernels.LoadOrStore(name, sync.OnceValues(s.Build))
	}
	return build.(func() (*ptx.Kernel, error))()
}
