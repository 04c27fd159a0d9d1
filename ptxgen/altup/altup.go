// Package altup holds the kernels of AltUp (arXiv 2301.13310), with which a model has several residual streams. Before a
// layer, Predict mixes them. The layer computes the first. Then Correct changes them all by what the layer changed.
package altup

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

const threads = 256 // per CTA; each has one Vec4 of each stream

// Predict mixes the streams of each token before a layer:
//
//	x[j,t] = x[j,t] + c[j,0]*x[0,t] + c[j,1]*x[1,t] + …
//	c[j,i] = w[j*streams+i,0]*m[t,0] + w[j*streams+i,1]*m[t,1] + …
//
// Both sums are chains of fused multiply-adds.
func Predict(streams int) kernel.Typed[Args] {
	return kernel.New(fmt.Sprintf("altup_predict_%d", streams), func(b *ptx.Builder) (*ptx.Kernel, error) { return buildPredict(b, streams) }, launch)
}

// Correct changes the streams of each token after a layer that computed y of stream 0, and scales stream 0:
//
//	x[j,t]      = x[j,t] + (1 + w[j,0]*m[t,0] + w[j,1]*m[t,1] + …)*(y[t] - x[0,t])
//	scaled[t,i] = x[0,t,i]*scale[i]
//
// The sum is a chain of fused multiply-adds from 1, and its product is added by another.
func Correct(streams int) kernel.Typed[Args] {
	return kernel.New(fmt.Sprintf("altup_correct_%d", streams), func(b *ptx.Builder) (*ptx.Kernel, error) { return buildCorrect(b, streams) },
		func(k *ptx.Kernel, a Args) (ptx.Launch, error) {
			if err := host.Valid(k, host.NonNil("Y", a.Y), host.NonNil("Scale", a.Scale), host.NonNil("Scaled", a.Scaled)); err != nil {
				return ptx.Launch{}, err
			}
			return launch(k, a)
		})
}

// Args are the arguments of a launch of Predict or Correct.
type Args struct {
	X             ptx.Address // f32 [streams] matrices [Tokens, Width]
	Stride        int         // elements from one matrix to the next
	M             ptx.Address // f32 [Tokens, streams]
	W             ptx.Address // f32 [streams*streams, streams] of Predict, [streams, streams] of Correct
	Tokens, Width int

	// Of Correct.
	Y      ptx.Address // f32 [Tokens, Width]
	Scale  ptx.Address // f32 [Width]
	Scaled ptx.Address // f32 [Tokens, Width]; may be Y
}

type params struct {
	X, M, W, Y, Scale, Scaled ptx.Global
	Width, Parts              ptx.U32 // Parts: CTAs per token
	Stride                    ptx.U32
}

// body is what both kernels begin with.
type body struct {
	params
	b    *ptx.Builder
	t, i ptx.U32      // the thread's token and Vec4
	rows []device.Row // of the streams
	x    []device.Vec4
	m    []ptx.F32
}

// begin returns nil if there are no streams.
func begin(b *ptx.Builder, streams int) *body {
	k := &body{b: b}
	if streams < 1 {
		b.Failf("%d streams", streams)
		return nil
	}
	ptx.Declare(b, &k.params)
	k.t = b.BlockX().Div(k.Parts)
	k.i = b.BlockX().Sub(k.t.Mul(k.Parts)).MulN(threads).Add(b.ThreadX())
	for j := range streams {
		k.rows = append(k.rows, k.row(k.X.AtBytes(b.N(j).MulWide(k.Stride).ShlN(2)).Aligned(4)))
	}
	b.ReturnIf(k.i.Ge(k.rows[0].Vec4s()))
	for j := range streams {
		k.x = append(k.x, k.rows[j].Load(k.i, 0))
	}
	for n := range streams {
		k.m = append(k.m, k.M.At(k.t.MulN(streams), 4).Plus(4*n).LoadF32())
	}
	return k
}

// row returns the token's row of a matrix.
func (k *body) row(x ptx.Global) device.Row {
	return device.RowAt(k.b, quant.F32, x.AtBytes(k.t.MulWide(k.Width).ShlN(2)).Aligned(4), k.Width)
}

// coefficient returns start + row r of w times m.
func (k *body) coefficient(start float32, r int) ptx.F32 {
	c := k.b.F32(start)
	for n, m := range k.m {
		c = k.W.Plus(4*(r*len(k.m)+n)).LoadF32(ptx.ReadOnly).FMA(m, c)
	}
	return c
}

func buildPredict(b *ptx.Builder, streams int) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("x[j,t] = x[j,t] + sum over i of c[j,i] * x[i,t], c[j,i] = sum over n of w[j*streams+i,n] * m[t,n]")
	k := begin(b, streams)
	if k == nil {
		return b.Finish()
	}
	for j := range streams {
		y := k.x[j]
		for i := range streams {
			c := k.coefficient(0, j*streams+i)
			for e, v := range k.x[i] {
				y[e] = c.FMA(v, y[e])
			}
		}
		k.rows[j].Store(k.i, y)
	}
	return b.Finish(ptx.MaxThreads(threads))
}

func buildCorrect(b *ptx.Builder, streams int) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("x[j,t] = x[j,t] + (1 + sum over n of w[j,n] * m[t,n]) * (y[t] - x[0,t])\nscaled[t,i] = x[0,t,i] * scale[i]")
	k := begin(b, streams)
	if k == nil {
		return b.Finish()
	}
	change := k.row(k.Y).Load(k.i, 0)
	scale := device.RowAt(b, quant.F32, k.Scale, k.Width).Load(k.i, 0, ptx.ReadOnly)
	for e, v := range change {
		change[e] = v.Sub(k.x[0][e])
	}
	for j := range streams {
		c, y := k.coefficient(1, j), k.x[j]
		for e, v := range change {
			y[e] = c.FMA(v, y[e])
		}
		k.rows[j].Store(k.i, y)
		if j == 0 {
			for e := range scale {
				scale[e] = y[e].Mul(scale[e])
			}
			k.row(k.Scaled).Store(k.i, scale)
		}
	}
	return b.Finish(ptx.MaxThreads(threads))
}

func launch(k *ptx.Kernel, a Args) (ptx.Launch, error) {
	parts := host.CeilDiv(a.Width, 4*threads)
	if err := host.Valid(k, host.Bound("Width", a.Width, 1, host.MaxSize), host.Bound("Tokens", a.Tokens, 1, host.MaxSize/max(parts, 1)),
		host.Bound("Stride", a.Stride, a.Tokens*a.Width, host.MaxSize), host.NonNil("X", a.X), host.NonNil("M", a.M), host.NonNil("W", a.W)); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Tokens * parts), 1, 1}, threads, 0, &params{
		X: ptx.Addr(a.X), M: ptx.Addr(a.M), W: ptx.Addr(a.W), Y: ptx.Addr(a.Y), Scale: ptx.Addr(a.Scale), Scaled: ptx.Addr(a.Scaled),
		Width: ptx.Uint(a.Width), Parts: ptx.Uint(parts), Stride: ptx.Uint(a.Stride),
	})
}
