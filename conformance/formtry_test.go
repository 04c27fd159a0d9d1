package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/lockstep-go/lockstep/quant"
)

func tryLanes(devices []formDevice, f laneForm) (formResult, error) {
	operands := operandsOf(f, *kernelSeed)
	n := len(operands[0])
	r := formResult{form: f.form, compared: n}
	in := make([][]byte, len(operands))
	for i, values := range operands {
		in[i] = packed(f.in[i], values)
	}
	approx, isApprox := approximationOf(f.op)
	want := wantOf(f)
	expected := make([]uint64, n)
	if want != nil {
		r.by = "Go"
		for i := range expected {
			expected[i] = want(operands, i)
		}
	}
	for i, d := range devices {
		b, err := d.run(f.text(), in, n/formThreads, n*typeBytes[f.out])
		if err != nil {
			return r, fmt.Errorf("%s: %w", d.name, err)
		}
		got := unpacked(f.out, b)
		switch {
		case isApprox:
			r.by = "Go, bound"
			worst, err := approx.check(operands[0], got)
			if d.name != perturbedName {
				r.worst = worst
			}
			if err != nil {
				return r, fmt.Errorf("%s: %w", d.name, err)
			}
			continue
		case want == nil && i == 0:
			expected, r.by = got, "nothing" // but the other devices
		case want == nil && d.name == gpuName:
			r.by = "the GPU"
		case d.name == gpuName:
			r.by = "Go and the GPU"
		}
		for j := range got {
			if !sameResult(f.out, got[j], expected[j]) {
				return r, fmt.Errorf("%s: %v of %s gives %#x, want %#x", d.name, f.form, hexes(operands, j), got[j], expected[j])
			}
		}
	}
	return r, nil
}

// sameResult compares bits; of floats any NaN equals any other.
func sameResult(typ string, a, b uint64) bool {
	if half, ok := strings.CutSuffix(typ, "x2"); ok {
		return sameResult(half, a&0xffff, b&0xffff) && sameResult(half, a>>16, b>>16)
	}
	return a == b || isNaN(typ, a) && isNaN(typ, b)
}

func isNaN(typ string, x uint64) bool {
	switch typ {
	case "f32":
		return x&0x7fffffff > 0x7f800000
	case "f64":
		return x&(1<<63-1) > 0x7ff<<52
	case "f16":
		return x&0x7fff > 0x7c00
	case "bf16":
		return x&0x7fff > 0x7f80
	}
	return false
}

func hexes(operands [][]uint64, i int) string {
	s := ""
	for _, list := range operands {
		s += fmt.Sprintf("%#x ", list[i])
	}
	return s[:len(s)-1]
}

func tryHand(devices []formDevice, f form, h handForm) (formResult, error) {
	const n = formCTAs * formThreads
	r := formResult{form: f, by: "Go", compared: n}
	in := handInputs(f)
	text, out := h.text(f), h.outSize(f)
	for _, d := range devices {
		given := in
		if strings.HasPrefix(f.op, "ld.param.") {
			given = in[:1] // p3 is the constant
		}
		got, err := d.run(text, given, formCTAs, n*out)
		if err != nil {
			return r, fmt.Errorf("%s: %w", d.name, err)
		}
		if d.name == gpuName {
			r.by = "Go and the GPU"
		}
		if h.check != nil {
			worst, err := h.check(f, in, got)
			r.worst = worst
			if err != nil {
				return r, fmt.Errorf("%s: %w", d.name, err)
			}
			continue
		}
		for i := range n {
			if want := h.want(f, in[0], i); firstByte(want, got[i*out:(i+1)*out]) >= 0 {
				return r, fmt.Errorf("%s: thread %d has % x, want % x", d.name, i, got[i*out:(i+1)*out], want)
			}
		}
	}
	return r, nil
}

// handInputs are p0 to p2: random bytes, or for matrix products numbers.
func handInputs(f form) [][]byte {
	random := rand.New(rand.NewPCG(*kernelSeed, 4))
	in := make([][]byte, 3)
	for i := range in {
		in[i] = make([]byte, formBytes)
		for at := 0; at < formBytes; at += 8 {
			binary.LittleEndian.PutUint64(in[i][at:], random.Uint64())
		}
	}
	if !strings.HasPrefix(f.op, "mma.") {
		return in
	}
	format := quant.F16
	if strings.Contains(f.op, ".bf16.") {
		format = quant.BF16
	}
	for i, as := range []quant.Format{format, format, quant.F32} {
		x := make([]float32, formBytes/as.BlockBytes())
		for j := range x {
			x[j] = float32(math.Ldexp(random.NormFloat64(), random.IntN(8)-4))
		}
		if err := as.Encode(in[i], x); err != nil {
			panic(err)
		}
	}
	return in
}
