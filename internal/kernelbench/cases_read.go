package kernelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/peak"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// readCases read as many bytes as a matrix product and compute nothing. They show the
// largest share of the limit that a launch of this size can reach.
func (s sizes) readCases(p driver.Properties) []Case {
	var all []Case
	for _, f := range []quant.Format{quant.Q2_K, quant.Q4_K, quant.Q8_0} {
		bytes := packedBytes(f, s.up()) &^ 15
		shape := fmt.Sprintf("as much as %v %v", f, s.up())
		plain := peak.Read()
		all = append(all, Case{Spec: plain, Shape: shape, Bytes: float64(bytes), Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			ctas := 4 * max(p.SMs, 1)
			return plain.Launch(k, peak.ReadArgs{In: r.Zeros(bytes), Out: r.OutU32s(256 * ctas), Bytes: bytes, CTAs: ctas})
		}})
		if p.ComputeCapability < 90 {
			continue
		}
		bulk := peak.BulkRead()
		chunks := max(1, int(bytes)/peak.BulkChunkBytes)
		whole := int64(chunks * peak.BulkChunkBytes)
		all = append(all, Case{Spec: bulk, Shape: shape, Bytes: float64(whole), Launch: func(r *Runner, k *ptx.Kernel) (ptx.Launch, error) {
			ctas := max(p.SMs, 1)
			return bulk.Launch(k, peak.BulkReadArgs{In: r.Zeros(whole), Out: r.OutU32s(ctas), Chunks: chunks, CTAs: ctas})
		}})
	}
	return all
}
