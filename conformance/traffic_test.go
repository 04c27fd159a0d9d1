package conformance

import (
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// TestVectorsTraffic holds a product of more vectors than its kernel has columns to what
// the products of each read, norms included: a CTA reads the vectors that it takes alone.
func TestVectorsTraffic(t *testing.T) {
	notShort(t)
	const vectors, rows, k = 5, 3, 1024
	spec := ptxgen.Gemv{Format: quant.F16}
	read := func(columns, times int) uint64 {
		device, err := emu.Open(emu.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewKernelSuite(func() (driver.Device, error) { return device, nil }, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.Guard = 0 // the emulator traps
		s.Run(t, KernelCase{Operation: "traffic", Name: "gemv", Reason: "counted", Run: func(r *KernelRig) {
			c := gemvCase{spec: spec, rows: rows, k: k, columns: columns}
			w, _ := r.packed("w", spec.Format, rows, k)
			y := r.Output("y", 4*columns*rows)
			a := c.args(r.F32s("x", r.Vector(Gaussian, columns*k)), w, y)
			a.Norm, a.Eps = ptxgen.RMSNorm, 1e-5
			c.launch(r, spec, a)
			first := y.F32s()
			for range times {
				c.launch(r, spec, a)
			}
			Exact(r, "again", y.F32s(), first)
		}})
		return device.Counters()[spec.Name()].LoadBytes
	}
	if together, apart := read(vectors, 1), read(1, 2*vectors-1); together != apart {
		t.Errorf("%d vectors together read %d bytes, one by one %d", vectors, together, apart)
	}
}
