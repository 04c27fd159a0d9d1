// Package ptxgen lists the kernels of a transformer. The packages below it generate them as
// PTX, one package per family; nothing here touches a device.
//
// A kernel is a kernel.Spec: a name, a generator, and a Launch that takes named arguments.
//
// Results never depend on scheduling: there are no floating-point atomics, and the order of
// additions follows from the shape of one row, never from the batch.
package ptxgen

import (
	"github.com/lockstep-go/lockstep/ptxgen/altup"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/deltanet"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/peak"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
	"github.com/lockstep-go/lockstep/quant"
)

// headDims are those of the architectures that the engine runs: 64 and 128 of GPT-2, Llama,
// Qwen, Mistral and Gemma 2; 80 of Phi-2; 96 of Phi-3; 256 of Gemma; 512 of Gemma 4.
var headDims = []int{64, 80, 96, 128, 256, 512}

// Reachable returns every kernel that an engine or a benchmark may ask for, in a fixed order.
func Reachable() []kernel.Spec {
	list := []kernel.Spec{peak.Read(), peak.BulkRead(), peak.MMA(), peak.WGMMA()}
	list = append(list, product.Specs()...)
	for _, d := range headDims {
		list = append(list, attention.Specs(d)...)
	}
	for _, f := range []quant.Format{quant.F32, quant.F16, quant.BF16} {
		list = append(list, norm.Rows(norm.RMS, f), norm.Rows(norm.Layer, f))
		if f != quant.F32 { // the KV cache has 16 bits
			list = append(list, rope.Append(f, attention.PageTokens))
		}
	}
	list = append(list, deltanet.Specs(128)...) // the heads of Qwen3-Next and Qwen3.5
	for _, s := range sample.Kernels() {
		list = append(list, s)
	}
	return append(list, elementwise.Fused(), norm.Sparsify(), altup.Predict(4), altup.Correct(4), altup.ScaleTo(),
		sample.Argmax(), sample.ArgmaxMerge(),
		moe.Route(false), moe.Route(true), moe.Group(), moe.Combine(), moe.CombineNormed())
}
