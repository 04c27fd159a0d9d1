package accel

import (
	"sync"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// built holds what kernelOf built, by name: a kernel follows from its spec alone, so all
// engines of a process share them.
var built sync.Map // string: func() (*ptx.Kernel, error)

// kernelOf builds a kernel, once.
func kernelOf(s ptxgen.Spec) (*ptx.Kernel, error) {
	build, ok := built.Load(s.Name())
	if !ok {
		build, _ = built.LoadOrStore(s.Name(), sync.OnceValues(s.Build))
	}
	return build.(func() (*ptx.Kernel, error))()
}
