package plan

import (
	"sync"

	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// kernels caches built kernels for all engines of the process. Keys are kernel names, values
// are func() (*ptx.Kernel, error). Kernels of one name are equal, because a kernel depends on
// its spec alone.
var kernels sync.Map

// Build returns the kernel of a spec. It builds each kernel once per process, and different ones concurrently.
func Build(s kernel.Spec) (*ptx.Kernel, error) {
	name := s.Name()
	build, ok := kernels.Load(name)
	if !ok {
		build, _ = kernels.LoadOrStore(name, sync.OnceValues(s.Build))
	}
	return build.(func() (*ptx.Kernel, error))()
}
