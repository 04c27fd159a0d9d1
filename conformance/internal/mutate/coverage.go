package mutate

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// coverage records which cases run which basic blocks. Instrumented kernels set a mark in
// memory at each block that they enter.
type coverage struct {
	block map[string][]int   // per kernel, the block of each line; -1 for a line without an instruction
	first map[string]int     // per kernel, its first mark
	seed  uint64             // of the cases' inputs
	marks int                // number of marks of all kernels
	cases [][]harness.Result // per mark, the cases that set it, cheapest first
	cost  map[string]float64 // per case ID, the warp instructions that it runs
}

// blocksOf numbers the basic blocks of a text.
func blocksOf(lines []string) (block []int, n int) {
	block = make([]int, len(lines))
	begins := true
	for i, line := range lines {
		block[i] = -1
		s, ok := ptxtext.Parse(line)
		if !ok {
			begins = begins || strings.HasPrefix(line, "$")
			continue
		}
		if begins {
			n++
		}
		block[i] = n - 1
		begins = s.Is("bra", "ret", "trap")
	}
	return block, n
}

// marked returns the text with an instruction at each block that sets the u32 at address +
// 4·block.
func marked(lines []string, block []int, address uint64) []byte {
	var b strings.Builder
	last := -1
	for i, line := range lines {
		if block[i] > last {
			if last < 0 {
				fmt.Fprintf(&b, "\tmov.u64 %%marks, %d;\n", address)
			}
			last = block[i]
			fmt.Fprintf(&b, "\tred.relaxed.gpu.global.or.b32 [%%marks+%d], 1;\n", 4*last)
		}
		b.WriteString(line + "\n")
		if line == "{" {
			b.WriteString("\t.reg .b64 %marks;\n")
		}
	}
	return []byte(b.String())
}

// cover runs the cases on instrumented kernels.
func cover(kernels map[string]*ptx.Kernel, which []*ptx.Kernel, cases []harness.Result, seed uint64) (*coverage, error) {
	c := &coverage{seed: seed, block: map[string][]int{}, first: map[string]int{}, cost: map[string]float64{}}
	for _, k := range which {
		n := 0
		c.block[k.Name], n = blocksOf(linesOf(k))
		c.first[k.Name] = c.marks
		c.marks += n
	}
	c.cases = make([][]harness.Result, c.marks)
	next := make(chan harness.Result)
	errs := make([]error, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			errs[w] = c.run(kernels, next)
			for range next { // drain after an error
			}
		})
	}
	for _, r := range cases {
		next <- r
	}
	close(next)
	wg.Wait()
	for _, list := range c.cases {
		slices.SortFunc(list, func(a, b harness.Result) int {
			return cmp.Or(cmp.Compare(c.cost[a.Case.ID()], c.cost[b.Case.ID()]), strings.Compare(a.Case.ID(), b.Case.ID()))
		})
	}
	return c, errors.Join(errs...)
}

// covering guards the maps and slices of a coverage.
var covering sync.Mutex

// run is one worker of cover.
func (c *coverage) run(kernels map[string]*ptx.Kernel, cases <-chan harness.Result) error {
	device, err := emu.Open(emu.Options{Workers: 1, IgnoreRaces: true})
	if err != nil {
		return err
	}
	s, err := harness.NewSuite(func() (driver.Device, error) { return device, nil }, c.seed)
	if err != nil {
		return err
	}
	defer s.Close()
	buffer, err := device.Alloc(int64(4 * c.marks))
	if err != nil {
		return err
	}
	s.Guard, s.Patterns, s.Kernels = 0, 1, maps.Clone(kernels)
	s.Serial = true
	s.Rewrite = func(name string, text []byte) []byte {
		if c.block[name] == nil {
			return text
		}
		return marked(linesOf(kernels[name]), c.block[name], uint64(buffer.Address())+4*uint64(c.first[name]))
	}
	image := make([]byte, 4*c.marks)
	for r := range cases {
		clear(image)
		device.ResetWarpInstructions()
		rec := &harness.Recorder{}
		if err := s.Stream.Write(buffer.Address(), image); err != nil {
			return err
		}
		if s.Run(rec, r.Case); len(rec.Messages) > 0 {
			return fmt.Errorf("%s, marked: %s", r.Case.ID(), rec.Messages[0])
		}
		if err := errors.Join(s.Stream.Read(image, buffer.Address()), s.Stream.Synchronize()); err != nil {
			return err
		}
		c.add(r, image, device.WarpInstructions())
	}
	return nil
}

// add records the marks of one case and the cost of its kernels.
func (c *coverage) add(r harness.Result, image []byte, did map[string]uint64) {
	covering.Lock()
	defer covering.Unlock()
	for _, n := range did {
		c.cost[r.Case.ID()] += float64(n)
	}
	for i := range c.cases {
		if binary.LittleEndian.Uint32(image[4*i:]) != 0 {
			c.cases[i] = append(c.cases[i], r)
		}
	}
}

// reaching returns the cases that run a line of a kernel, cheapest first.
func (c *coverage) reaching(kernel string, line int) []harness.Result {
	block := c.block[kernel]
	if block == nil || block[line] < 0 {
		return nil
	}
	return c.cases[c.first[kernel]+block[line]]
}
