package product

import (
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// generator is a Stream or a Tile.
type generator interface {
	name() string
	threads() int
	minCTAs() int        // per SM, to which the compiler fits the registers
	emit(b *ptx.Builder) // the code of the kernel
	part(k *ptx.Kernel, a Args) (ptx.Part, error)

	// work returns how many tasks CTAs share for some arguments, and what each costs relative to tasks of other formats.
	work(a Args) (tasks, cost int)
}

// kernelOf returns the kernel of a single product.
func kernelOf(g generator) kernel.Typed[Args] {
	build := func(b *ptx.Builder) (*ptx.Kernel, error) {
		g.emit(b)
		return b.Finish(ptx.MaxThreads(g.threads()), ptx.MinCTAs(g.minCTAs()))
	}
	return kernel.New(g.name(), build, func(k *ptx.Kernel, a Args) (ptx.Launch, error) {
		p, err := g.part(k, a)
		if err != nil {
			return ptx.Launch{}, err
		}
		return k.Launch([3]uint32{uint32(p.CTAs), uint32(max(a.Slots, 1)), 1}, p.Threads, p.Shared, p.Params...)
	})
}
