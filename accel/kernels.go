package accel

import (
	"sync"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// built holds what kernelOf built, by name: a kernel follows from its spec alone, so all
// engines of a process share them. bySpec holds the same, as to make a name takes long, and
// a plan asks hundreds of times; specs that differ may have one name.
var built, bySpec sync.Map // string, ptxgen.Spec: func() (*ptx.Kernel, error)

// kernelOf builds a kernel, once.
func kernelOf(s ptxgen.Spec) (*ptx.Kernel, error) {
	build, ok := bySpec.Load(s)
	if !ok {
		build, _ = built.LoadOrStore(s.Name(), sync.OnceValues(s.Build))
		bySpec.Store(s, build)
	}
	return build.(func() (*ptx.Kernel, error))()
}
