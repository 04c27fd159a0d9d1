package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/peak"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// readCases read what products read and do nothing with it: how much of the limit a
// launch of that size can reach at most, since one begins when the one before has ended.
func (s sizes) readCases(p driver.Properties) []Case {
	var all []Case
	for _, f := range []quant.Format{quant.Q2_K, quant.Q4_K, quant.Q8_0} {
		bytes := packedBytes(f, s.up()) &^ 15
		shape := fmt.Sprintf("as much as %v %v", f, s.up())
		plain := peak.Read()
		all = append(all, Case{Spec: plain, Shape: shape, Bytes: float64(bytes), Launch: func(r *Rig, k *ptx.Kernel) (ptx.Launch, error) {
			ctas := 4 * max(p.SMs, 1)
			return plain.Launch(k, peak.ReadArgs{In: r.Zeros(bytes), Out: r.OutU32s(256 * ctas), Bytes: bytes, CTAs: ctas})
		}})
		if p.ComputeCapability < 90 {
			continue
		}
		bulk := peak.BulkRead()
		chunks := max(1, int(bytes)/peak.BulkChunkBytes)
		whole := int64(chunks * peak.BulkChunkBytes)
		all = append(all, Case{Spec: bulk, Shape: shape, Bytes: float64(whole), Launch: func(r *Rig, k *ptx.Kernel) (ptx.Launch, error) {
			ctas := max(p.SMs, 1)
			return bulk.Launch(k, peak.BulkReadArgs{In: r.Zeros(whole), Out: r.OutU32s(ctas), Chunks: chunks, CTAs: ctas})
		}})
	}
	return all
}
