// Package kernel describes kernels before they are built: a name, a generator, and how a
// launch is made from named arguments.
package kernel

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// Spec describes a kernel that can be built. Nothing in it depends on a device.
type Spec interface {
	// Name returns the name of the kernel's entry. No two kernels share a name.
	Name() string
	// Build generates the kernel. Each call returns an equal kernel.
	Build() (*ptx.Kernel, error)
}

// Typed is a Spec of a kernel whose launches take arguments of type A.
type Typed[A any] struct {
	name   string
	build  func(*ptx.Builder) (*ptx.Kernel, error)
	launch func(*ptx.Kernel, A) (ptx.Launch, error)
}

// New returns a spec. build generates the kernel on a new builder of that name. launch makes
// a launch of the built kernel, and returns an error that names the field of A that is wrong.
func New[A any](name string, build func(*ptx.Builder) (*ptx.Kernel, error), launch func(*ptx.Kernel, A) (ptx.Launch, error)) Typed[A] {
	return Typed[A]{name, build, launch}
}

// Name implements Spec.
func (t Typed[A]) Name() string { return t.name }

// Build implements Spec.
func (t Typed[A]) Build() (*ptx.Kernel, error) { return t.build(ptx.New(t.name)) }

// Launch makes a launch of k, a kernel that Build returned.
func (t Typed[A]) Launch(k *ptx.Kernel, a A) (ptx.Launch, error) { return t.launch(k, a) }
