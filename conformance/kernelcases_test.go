package conformance

import (
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/kernelcases"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/quant"
)

func TestAttentionFaults(t *testing.T) {
	skipIfShort(t)
	s := kernelSuite(t)
	for _, fault := range kernelcases.AttentionFaults() {
		t.Run(fault.Name, func(t *testing.T) {
			rec := &harness.Recorder{}
			s.Run(rec, fault.Case)
			if (len(rec.Messages) == 0) != fault.Clean {
				t.Errorf("%d failures: %q", len(rec.Messages), rec.Messages)
			}
			if err := s.Device().Err(); err != nil {
				t.Errorf("the device is lost: %v", err)
			}
		})
	}
}

// TestGemvTraffic demands that a product of more vectors than its kernel has columns reads
// as many bytes as separate products. So each CTA reads only its own vectors.
func TestGemvTraffic(t *testing.T) {
	skipIfShort(t)
	const vectors = 5
	read := func(columns, times int) uint64 {
		device, err := emu.Open(emu.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := harness.NewSuite(func() (driver.Device, error) { return device, nil }, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.Guard = 0 // the emulator traps
		s.Run(t, kernelcases.NormedGemv(columns, times))
		return device.Counters()[(matmul.Gemv{Format: quant.F16}).Name()].LoadBytes
	}
	if together, apart := read(vectors, 1), read(1, 2*vectors-1); together != apart {
		t.Errorf("%d vectors in one launch read %d bytes, separately %d", vectors, together, apart)
	}
}
