package plan

import (
	"sync"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// kernelsByName and kernelsBySpec cache kernels for all engines of the process. A kernel
// depends on its spec alone, and different specs may have the same name. The lookup by spec
// avoids formatting the name for each of the hundreds of launches of a plan.
var kernelsByName, kernelsBySpec sync.Map // string, ptxgen.Spec: func() (*ptx.Kernel, error)

// kernel builds a kernel once.
func kernel(s ptxgen.Spec) (*ptx.Kernel, error) {
	build, ok := kernelsBySpec.Load(s)
	if !ok {
		build, _ = kernelsByName.LoadOrStore(s.Name(), sync.OnceValues(s.Build))
		kernelsBySpec.Store(s, build)
	}
	return build.(func() (*ptx.Kernel, error))()
}
