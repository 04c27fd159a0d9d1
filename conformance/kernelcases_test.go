package conformance

import (
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/kernelcases"
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
