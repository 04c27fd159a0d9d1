package accel

import (
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen"
)

// batched reports whether a product is of several rows by quantized weights, which takes
// their digits, made once for all matrices that multiply them. Others make what they need
// by themselves.
func (p product) batched() bool { return p.rows > 1 && p.w.experts == 0 && p.w.format.BlockLen() > 1 }

// digited says what the digits are of.
type digited struct {
	x     ptxgen.Address
	norm  norm
	layer int
	rows  int
	width int
	spec  ptxgen.Digits
}

// gemvBatch is a product of several rows, each with the bits that it has alone.
func (b *planner) gemvBatch(op string, p product) {
	s, err := b.batchFor(p)
	if err != nil {
		b.fail(op, err)
		return
	}
	b.digit(op, p, s.Digits())
	add(b, op, s, b.batchArgs(p))
}

func (b *planner) batchArgs(p product) ptxgen.GemvBatchArgs {
	one := b.gemvArgs(p)
	return ptxgen.GemvBatchArgs{
		Digits: b.digits, W: one.W, Up: one.Up, Y: one.Y, Rows: one.Rows, K: one.K, Columns: p.rows, YStride: one.YStride,
		Bias: one.Bias, Softcap: one.Softcap, Activation: one.Activation, Residual: one.Residual,
		Workspace: one.Workspace, SMs: one.SMs, Shared: one.Shared,
	}
}

// batchWorkspace is how many bytes of workspace the product needs, and how many its digits
// take.
func (b *planner) batchWorkspace(p product) (workspace, digits int64, err error) {
	s, err := b.batchFor(p)
	if err != nil {
		return 0, 0, err
	}
	k, err := kernelOf(s)
	if err != nil {
		return 0, 0, err
	}
	n, err := s.Workspace(k, b.batchArgs(p))
	return int64(n), s.Digits().Bytes(p.w.k, p.rows), err
}

func (b *planner) batchFor(p product) (ptxgen.BatchKernel, error) {
	return ptxgen.GemvBatchFor(p.w.format, p.rows, p.up != nil, p.w.k, kernelcache.MaxTarget(b.props), b.props.SharedPerCTA)
}

// digit makes the digits of a product's rows, unless they are there.
func (b *planner) digit(op string, p product, s ptxgen.Digits) {
	want := digited{x: p.x, norm: p.norm, layer: b.layer, rows: p.rows, width: p.w.k, spec: s}
	if want == b.digited {
		return
	}
	b.digited = want
	add(b, op+" digits", s, ptxgen.DigitsArgs{
		X: p.x, Out: b.digits, K: p.w.k, Vectors: p.rows,
		Norm: p.norm.kind, NormWeight: p.norm.weight, NormBias: p.norm.bias, Eps: b.cfg.NormEps,
	})
}
