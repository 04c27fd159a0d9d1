package product

import (
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Beside returns a kernel that computes several products, of matrices in different formats, each by CTAs of its own: see
// ptx.Builder.Beside. The arguments of a launch are those of each product. Their CTAs are equal: the largest size
// of the whole grid. Each product has at least one CTA. A kernel of one product is that product's kernel.
func Beside[G Stream | Tile](products ...G) kernel.Typed[[]Args] {
	var s beside
	for _, p := range products {
		s = append(s, any(p).(generator))
	}
	return kernel.New(s.name(), s.build, s.launch)
}

// beside are products that are computed side by side.
type beside []generator

func (s beside) name() string {
	name := s[0].name()
	for _, g := range s[1:] {
		name += "_and" + strings.TrimPrefix(g.name(), "product")
	}
	return name
}

func (s beside) build(b *ptx.Builder) (*ptx.Kernel, error) {
	threads, ctas := 0, 1
	var parts []func()
	for _, g := range s {
		threads, ctas = max(threads, g.threads()), max(ctas, g.minCTAs())
		parts = append(parts, func() { g.emit(b) })
	}
	if len(parts) == 1 {
		parts[0]()
	} else {
		b.Beside(parts...)
	}
	return b.Finish(ptx.MaxThreads(threads), ptx.MinCTAs(ctas))
}

func (s beside) launch(k *ptx.Kernel, list []Args) (ptx.Launch, error) {
	if err := host.Valid(k, host.Refuse(len(list) != len(s), "Args", "%d for %d products", len(list), len(s))); err != nil {
		return ptx.Launch{}, err
	}
	if len(s) == 1 {
		return kernelOf(s[0]).Launch(k, list[0])
	}
	parts := make([]ptx.Part, len(s))
	for i, ctas := range s.share(list) {
		a := list[i]
		err := host.Valid(k,
			host.Refuse(a.Experts != 0, "Experts", "products side by side have none"),
			host.Refuse(a.CTAs != list[0].CTAs, "CTAs", "%d and %d are not equal", list[0].CTAs, a.CTAs))
		a.CTAs = ctas
		if err == nil {
			parts[i], err = s[i].part(k, a)
		}
		if err != nil {
			return ptx.Launch{}, err
		}
	}
	return k.LaunchBeside(parts...)
}

// share returns the number of CTAs for each product, so that the busiest CTA of all has as little to do as possible.
func (s beside) share(list []Args) []int {
	ctas := make([]int, len(s))
	for i := range ctas {
		ctas[i] = 1
	}
	for range list[0].CTAs - len(s) {
		busiest, most := 0, 0
		for i, g := range s {
			tasks, cost := g.work(list[i])
			if load := host.CeilDiv(tasks, ctas[i]) * cost; load > most {
				busiest, most = i, load
			}
		}
		ctas[busiest]++
	}
	return ctas
}
