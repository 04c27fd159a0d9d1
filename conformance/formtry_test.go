package conformance

import (
	"errors"
	"fmt"
)

// formResult is a row of the table of instructions.
type formResult struct {
	form     form
	by       string  // what it was compared with
	compared int     // results, on all devices
	worst    float64 // error ÷ bound, of approximate ones: on the GPU if there is one
	without  string  // what the device lacks that it was left out on
}

// errUnmeasured is of a form that nothing tries.
var errUnmeasured = errors.New("unmeasured: no expectation and no kernel")

// formBench is where forms are tried.
type formBench struct {
	devices      []*formDevice
	seed         uint64
	combinations int // of directed values, at most
	// plant changes an expected result; the comparison must notice.
	plant func(want []uint64)
}

// try runs a form on every device and compares.
func (b formBench) try(f form, u use) (formResult, error) {
	if lane, ok := laneFormOf(f); ok {
		return b.tryLanes(lane, u)
	}
	if hand, ok := handFormOf(f); ok {
		return b.tryHand(f, hand)
	}
	return formResult{form: f, by: "nothing"}, fmt.Errorf("%w tries %v", errUnmeasured, f)
}

// laneTrial is a lane form with what it is tried on.
type laneTrial struct {
	laneForm
	operands [][]uint64
	variants []variant
	want     []uint64 // variant by variant; nil where the form is an approximation
	emulated []uint64 // the first device's results
}

func (b formBench) tryLanes(f laneForm, u use) (formResult, error) {
	for tuple := range u.tuples {
		if !f.takes(tuple) {
			return formResult{form: f.form}, fmt.Errorf("%w for %v with operands %s", errUnmeasured, f, tuple)
		}
	}
	try := laneTrial{laneForm: f, operands: operandsOf(f, b.combinations, b.seed), variants: variantsOf(f, u.tuples, b.seed)}
	n := len(try.operands[0])
	r := formResult{form: f.form, by: "Go, within a bound"}
	if approximations[f.op].of == nil {
		expect := wantOf(f)
		if expect == nil {
			return r, fmt.Errorf("%w for %v", errUnmeasured, f)
		}
		r.by, try.want = "Go, exactly", wants(f, expect, try.operands, try.variants)
	}
	if b.plant != nil {
		b.plant(try.want)
	}
	for _, d := range b.devices {
		if lack := d.lacks(f.needs()); lack != "" {
			r.without = lack
			continue
		}
		worst, err := try.on(d)
		if err != nil {
			return r, fmt.Errorf("%s: %w", d.name, err)
		}
		if r.compared += n * len(try.variants); d.name != perturbedName {
			r.worst = worst
		}
	}
	return r, nil
}

// on tries the form on a device.
func (try *laneTrial) on(d *formDevice) (worst float64, err error) {
	n, size := len(try.operands[0]), try.outBytes()
	raw, err := d.run(try.text(try.variants, n), try.inputs(), n/formThreads, n*len(try.variants)*size)
	if err != nil {
		return 0, err
	}
	got := unpacked(size, raw)
	if try.emulated == nil && d.name != gpuName {
		try.emulated = got
	}
	return try.compare(got, d.name == gpuName)
}

// inputs are the operands as memory holds them.
func (try laneTrial) inputs() [][]byte {
	var in [][]byte
	for i, values := range try.operands {
		in = append(in, packed(try.in[i], values))
	}
	return in
}

// compare holds results to the expectation or to the bound, of which it gives the
// used part; a GPU's also to the emulator's, bit for bit.
func (try laneTrial) compare(got []uint64, gpu bool) (worst float64, err error) {
	if try.want == nil {
		return approximations[try.op].check(try.form, withVariants(try.operands, try.variants, 0), got)
	}
	n := len(try.operands[0])
	for i := range got {
		want, same := try.want[i], sameResult(try.out, got[i], try.want[i])
		if gpu && same && !try.freeNaN() && try.emulated != nil {
			want, same = try.emulated[i], got[i] == try.emulated[i]
		}
		if !same {
			return 0, fmt.Errorf("%v %s of %s gives %#x, want %#x", try.form, try.variants[i/n], hexes(try.operands, i%n), got[i], want)
		}
	}
	return 0, nil
}

// freeNaN tells whether PTX leaves the bits of a NaN open. Those of float32 and
// halves are fixed, but where a sign is changed or a NaN comes from a float64.
func (f laneForm) freeNaN() bool {
	return f.out == "f64" || f.isOp("neg.f", "abs.f", "cvt.rn.f32.f64")
}

// wants are the expected results, variant by variant.
func wants(f laneForm, expect func(x [][]uint64, i int) uint64, operands [][]uint64, variants []variant) []uint64 {
	var all []uint64
	for _, v := range variants {
		x := numbered(f, operands, v)
		for i := range operands[0] {
			all = append(all, expect(x, i))
		}
	}
	return all
}

// numbered are the operands with the numbers of a variant in their places.
func numbered(f laneForm, operands [][]uint64, v variant) [][]uint64 {
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

// withVariants is an operand as each variant has it, one after the other.
func withVariants(operands [][]uint64, variants []variant, j int) []uint64 {
	var all []uint64
	for _, v := range variants {
		x := operands[j]
		if v[j] != "" {
			number := bitsOfLiteral("b32", v[j])
			x = make([]uint64, len(x))
			for i := range x {
				x[i] = number
			}
		}
		all = append(all, x...)
	}
	return all
}

func (v variant) String() string {
	s := ""
	for _, number := range v {
		if number != "" {
			s += number + " "
		} else {
			s += "r "
		}
	}
	return "(" + s[:max(0, len(s)-1)] + ")"
}

func hexes(operands [][]uint64, i int) string {
	s := ""
	for _, list := range operands {
		s += fmt.Sprintf("%#x ", list[i])
	}
	return s[:len(s)-1]
}

// tryHand runs the kernel that is written for a form. Its inputs are words both
// random and directed, or numbers.
func (b formBench) tryHand(f form, h handForm) (formResult, error) {
	const n = formCTAs * formThreads
	r := formResult{form: f, by: "a kernel by hand"}
	in := h.inputs(f, b.seed)
	text, out := h.text(f), h.outSize(f)
	want := h.expected(f, in)
	if h.check == nil && len(want) != n*out {
		return r, fmt.Errorf("%w for %v", errUnmeasured, f)
	}
	if b.plant != nil && want != nil {
		words := unpacked(1, want)
		b.plant(words)
		want = packed8(words)
	}
	for _, d := range b.devices {
		if lack := d.lacks(h.needs(f)); lack != "" {
			r.without = lack
			continue
		}
		got, err := d.run(text, in, formCTAs, n*out)
		if err != nil {
			return r, fmt.Errorf("%s: %w", d.name, err)
		}
		r.compared += n
		if h.check != nil {
			worst, err := h.check(f, in, got)
			r.worst, r.by = worst, "a kernel by hand, to a bound or a rule"
			if err != nil {
				return r, fmt.Errorf("%s: %w", d.name, err)
			}
			continue
		}
		if i := firstByte(want, got); i >= 0 {
			i = i / out * out
			return r, fmt.Errorf("%s: thread %d has % x, want % x", d.name, i/out, got[i:i+out], want[i:i+out])
		}
	}
	return r, nil
}

// expected are the outputs of all threads; nil where check compares instead.
func (h handForm) expected(f form, in [][]byte) []byte {
	if h.want == nil {
		return nil
	}
	var all []byte
	for i := range formCTAs * formThreads {
		all = append(all, h.want(f, in, i)...)
	}
	return all
}

func packed8(bytes []uint64) []byte {
	var b []byte
	for _, v := range bytes {
		b = append(b, byte(v))
	}
	return b
}
