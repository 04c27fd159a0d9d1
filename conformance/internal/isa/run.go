package isa

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
)

// Result is a row of the instruction table.
type Result struct {
	form     Form
	method   string  // what the form was compared with
	Compared int     // number of results, on all devices
	worst    float64 // largest error divided by its bound; the GPU's if there is one
	Skipped  string  // what a device lacks that skipped the form
}

// ErrNoExpectation means that nothing tests a form.
var ErrNoExpectation = errors.New("unmeasured: no expectation and no test kernel")

// Bench tests forms on devices.
type Bench struct {
	Devices      []*Device
	Seed         uint64
	Combinations int // at most, of edge cases
	// Plant, if set, changes an expected result. The comparison must detect it.
	Plant func(want []uint64)
}

// Try runs a form on each device and compares the results.
func (b Bench) Try(f Form, u Use) (Result, error) {
	if lane, ok := LaneFormOf(f); ok {
		return b.tryLanes(lane, u)
	}
	if kernel, ok := TestKernelFor(f); ok {
		return b.tryKernel(f, kernel)
	}
	return Result{form: f, method: "nothing"}, fmt.Errorf("%w: %v", ErrNoExpectation, f)
}

// laneTrial is a LaneForm with the operands that it is tested on.
type laneTrial struct {
	lane     LaneForm
	operands [][]uint64
	variants []variant
	want     []uint64 // by variant; nil for an approximation
	emulated []uint64 // results of the first device
}

func (b Bench) tryLanes(f LaneForm, u Use) (Result, error) {
	for tuple := range u.Tuples {
		if !f.takes(tuple) {
			return Result{form: f.form}, fmt.Errorf("%w: %v with operands %s", ErrNoExpectation, f.form, tuple)
		}
	}
	try := laneTrial{lane: f, operands: operandsOf(f, b.Combinations, b.Seed), variants: variantsOf(f, u.Tuples, b.Seed)}
	n := len(try.operands[0])
	r := Result{form: f.form, method: "Go, within a bound"}
	if approximations[f.form.Op].of == nil {
		expect := expectation(f)
		if expect == nil {
			return r, fmt.Errorf("%w: %v", ErrNoExpectation, f)
		}
		r.method, try.want = "Go, exact", expectedResults(f, expect, try.operands, try.variants)
	}
	if b.Plant != nil {
		b.Plant(try.want)
	}
	for _, d := range b.Devices {
		if lack := d.Lacks(f.form.Target()); lack != "" {
			r.Skipped = lack
			continue
		}
		worst, err := try.on(d)
		if err != nil {
			return r, fmt.Errorf("%s: %w", d.Name, err)
		}
		if r.Compared += n * len(try.variants); d.Name != Perturbed {
			r.worst = worst
		}
	}
	return r, nil
}

// on runs the form on a device.
func (try *laneTrial) on(d *Device) (worst float64, err error) {
	n, size := len(try.operands[0]), try.lane.outBytes()
	raw, err := d.Run(try.lane.text(try.variants, n), try.inputs(), n/Threads, Threads, n*len(try.variants)*size)
	if err != nil {
		return 0, err
	}
	got := unpack(size, raw)
	if try.emulated == nil && d.Name != GPU {
		try.emulated = got
	}
	return try.compare(got, d.Name == GPU)
}

// inputs returns the operands as memory holds them.
func (try laneTrial) inputs() [][]byte {
	var in [][]byte
	for i, values := range try.operands {
		in = append(in, pack(try.lane.in[i], values))
	}
	return in
}

// compare compares results with the expectation or with the bound, and returns the largest
// error divided by the bound. It compares the bits of a GPU's results also with the
// emulator's.
func (try laneTrial) compare(got []uint64, gpu bool) (worst float64, err error) {
	if try.want == nil {
		var x []uint64
		for _, v := range try.variants {
			x = append(x, withLiterals(try.lane, try.operands, v)[0]...)
		}
		return approximations[try.lane.form.Op].check(try.lane.form, x, got)
	}
	n := len(try.operands[0])
	for i := range got {
		want, same := try.want[i], SameResult(try.lane.Out, got[i], try.want[i])
		if gpu && same && !try.lane.freeNaN() && try.emulated != nil {
			want, same = try.emulated[i], got[i] == try.emulated[i]
		}
		if !same {
			return 0, fmt.Errorf("%v %s of %s gives %#x, want %#x", try.lane.form, try.variants[i/n], hexes(try.operands, i%n), got[i], want)
		}
	}
	return 0, nil
}

// freeNaN reports whether PTX leaves the bits of a NaN result open. They are fixed for
// float32 and 16-bit results, except for sign changes and conversions from float64.
func (f LaneForm) freeNaN() bool {
	return f.Out == "f64" || f.form.isOp("neg.f", "abs.f", "cvt.rn.f32.f64")
}

// expectedResults returns the results of all variants.
func expectedResults(f LaneForm, expect func(x [][]uint64, i int) uint64, operands [][]uint64, variants []variant) []uint64 {
	var all []uint64
	for _, v := range variants {
		x := withLiterals(f, operands, v)
		for i := range operands[0] {
			all = append(all, expect(x, i))
		}
	}
	return all
}

// withLiterals returns the operands with the literals of a variant.
func withLiterals(f LaneForm, operands [][]uint64, v variant) [][]uint64 {
	x := make([][]uint64, len(operands))
	for j, values := range operands {
		x[j] = values
		if v[j] == "" {
			continue
		}
		x[j] = make([]uint64, len(values))
		for i := range x[j] {
			x[j][i] = bitsOfLiteral(f.in[j], v[j])
		}
	}
	return x
}

// String lists the operands: literals, or r for a register.
func (v variant) String() string {
	words := make([]string, len(v))
	for i, literal := range v {
		words[i] = cmp.Or(literal, "r")
	}
	return "(" + strings.Join(words, " ") + ")"
}

// hexes formats the operands of thread i.
func hexes(operands [][]uint64, i int) string {
	words := make([]string, len(operands))
	for j, list := range operands {
		words[j] = fmt.Sprintf("%#x", list[i])
	}
	return strings.Join(words, " ")
}

// tryKernel runs the test kernel of a form.
func (b Bench) tryKernel(f Form, h TestKernel) (Result, error) {
	const n = CTAs * Threads
	r := Result{form: f, method: "test kernel"}
	in := h.Inputs(f, b.Seed)
	text, out := h.Text(f), h.outSize(f)
	want := h.Expected(f, in)
	if h.check == nil && len(want) != n*out {
		return r, fmt.Errorf("%w: %v", ErrNoExpectation, f)
	}
	if b.Plant != nil && want != nil {
		words := unpack(1, want)
		b.Plant(words)
		want = packBytes(words)
	}
	for _, d := range b.Devices {
		if lack := d.Lacks(h.Needs(f)); lack != "" {
			r.Skipped = lack
			continue
		}
		got, err := d.Run(text, in, CTAs, Threads, n*out)
		if err != nil {
			return r, fmt.Errorf("%s: %w", d.Name, err)
		}
		r.Compared += n
		if h.check != nil {
			worst, err := h.check(f, in, got)
			r.worst, r.method = worst, "test kernel, within a bound"
			if err != nil {
				return r, fmt.Errorf("%s: %w", d.Name, err)
			}
			continue
		}
		if i := harness.FirstDifferentByte(want, got); i >= 0 {
			i = i / out * out
			return r, fmt.Errorf("%s: thread %d has % x, want % x", d.Name, i/out, got[i:i+out], want[i:i+out])
		}
	}
	return r, nil
}

// Expected returns the outputs of all threads, or nil if check compares instead.
func (h TestKernel) Expected(f Form, in [][]byte) []byte {
	if h.want == nil {
		return nil
	}
	var all []byte
	for i := range CTAs * Threads {
		all = append(all, h.want(f, in, i)...)
	}
	return all
}

func packBytes(bytes []uint64) []byte {
	var b []byte
	for _, v := range bytes {
		b = append(b, byte(v))
	}
	return b
}

// ResultBytes returns the size of what is compared at once: a lane's result, or a byte.
func ResultBytes(f Form) int {
	if lane, ok := LaneFormOf(f); ok {
		return lane.outBytes()
	}
	return 1
}

// IsBounded reports whether results may deviate within a bound.
func IsBounded(f Form) bool {
	if _, ok := approximations[f.Op]; ok {
		return true
	}
	h, ok := TestKernelFor(f)
	return ok && h.check != nil
}

// PrintTable prints one line per form and the number of forms per method.
func PrintTable(results []Result) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\ninstruction\tcompared\twith\tworst error/bound\n")
	byKind := map[string]int{}
	for _, r := range results {
		worst := ""
		if strings.Contains(r.method, "bound") {
			worst = fmt.Sprintf("%.3g", r.worst)
		}
		fmt.Fprintf(w, "%v\t%d\t%s\t%s\n", r.form, r.Compared, r.method, worst)
		byKind[r.method]++
		if r.Skipped != "" {
			byKind["skipped: "+r.Skipped]++
		}
	}
	w.Flush()
	fmt.Println()
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		fmt.Printf("%d forms: %s\n", byKind[kind], kind)
	}
}
