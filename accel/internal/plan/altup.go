package plan

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/altup"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// altUp is what AltUp and LAuReL have in a layer. See model.Layer.
type altUp struct {
	norm             normWeights
	router           matrix
	predict, correct ptx.Address // f32 [streams·streams, streams], [streams, streams]
	scale            ptx.Address // f32 [hidden]

	laurelIn, laurelOut matrix
	laurelPost          normWeights
}

// altUp adds what AltUp and LAuReL have in a layer. The sum after attention is divided by √2.
func (b weightBuilder) altUp(to *layer, in *model.Layer, name string) {
	a := &altUp{}
	to.altUp = a
	b.norm(&a.norm, name+"stream norm", in.StreamNorm)
	b.matrix(&a.router, name+"stream router", in.StreamRouter)
	b.floats(&a.predict, name+"stream prediction", in.Predict)
	b.floats(&a.correct, name+"stream correction", in.Correct)
	b.floats(&a.scale, name+"stream scale", in.CorrectScale)
	b.matrix(&a.laurelIn, name+"LAuReL in", in.LaurelIn)
	b.matrix(&a.laurelOut, name+"LAuReL out", in.LaurelOut)
	b.norm(&a.laurelPost, name+"LAuReL post-norm", in.LaurelPostNorm)
	to.attnPost.scale = float32(1 / math.Sqrt2)
}

// streamStride is the number of elements from one residual stream to the next in Buffers.x. Streams begin at multiples of 16 bytes.
func (l *Layout) streamStride() int { return ceilDiv(l.MaxTokens*l.model.Hidden, 4) * 4 }

// stream returns the address of a residual stream, f32 [T, hidden].
func (p *planner) stream(j int) ptx.Address {
	return p.buf.x + ptx.Address(4*j*p.layout.streamStride())
}

// sum returns the address of what attention and feed-forward network are added to: the residual stream, or with AltUp the
// layer's result of stream 0.
func (p *planner) sum() ptx.Address {
	if p.model.Streams > 0 {
		return p.buf.sum
	}
	return p.buf.x
}

// startStreams computes the residual streams but the first, which is the embedding.
func (p *planner) startStreams() {
	var parts []matrixProduct
	for j := range p.layout.weights.streamIn {
		parts = append(parts, matrixProduct{w: &p.layout.weights.streamIn[j], x: p.buf.x, y: p.stream(j + 1)})
	}
	p.product("streams", parts...)
	for j := range parts {
		x := p.stream(j + 1)
		add(p, "stream length", altup.ScaleTo(), altup.ScaleToArgs{X: x, Like: p.buf.x, Y: x, Rows: p.shape.Tokens, Width: p.model.Hidden})
	}
}

// mergeStreams computes what the final norm reads, into the first residual stream.
func (p *planner) mergeStreams() {
	residual, last := p.buf.x, len(p.layout.weights.streamOut)-1
	for j := range p.layout.weights.streamOut {
		p.product("merge streams", matrixProduct{w: &p.layout.weights.streamOut[j], x: p.stream(j + 1), y: p.buf.out})
		args := altup.ScaleToArgs{X: p.buf.out, Like: p.buf.x, Residual: residual, Y: p.buf.sum, Rows: p.shape.Tokens, Width: p.model.Hidden}
		if residual = p.buf.sum; j == last {
			args.Y, args.Scale = p.buf.x, 1/float32(p.model.Streams)
		}
		add(p, "merge streams", altup.ScaleTo(), args)
	}
	p.xChanged()
}

// routeStreams computes the coefficients of the streams from x, and returns the arguments of the kernels that use them.
func (p *planner) routeStreams(a *altUp, x, w ptx.Address) altup.Args {
	p.product("stream router", matrixProduct{w: &a.router, x: x, norm: a.norm, y: p.buf.coefficients, softcap: 1}) // tanh
	return altup.Args{
		X: p.buf.x, Stride: p.layout.streamStride(), M: p.buf.coefficients, W: w, Tokens: p.shape.Tokens, Width: p.model.Hidden,
	}
}

// predictStreams changes the streams before a layer.
func (p *planner) predictStreams(a *altUp) {
	add(p, "predict streams", altup.Predict(p.model.Streams), p.routeStreams(a, p.buf.x, a.predict))
	p.xChanged()
}

// addLaurel computes the first terms of the sum after attention: stream 0, its norm, and LAuReL's branch.
func (p *planner) addLaurel(l *layer) {
	a, x := l.altUp, p.buf.x
	p.product("LAuReL in", matrixProduct{w: &a.laurelIn, x: x, norm: l.attnNorm, y: p.buf.gate})
	p.product("LAuReL out", matrixProduct{w: &a.laurelOut, x: p.buf.gate, y: p.buf.out})
	add(p, "LAuReL norm", norm.Rows(l.attnNorm.kind, quant.F32), norm.RowsArgs{
		X: x, Weight: l.attnNorm.weight, Residual: x, Y: p.buf.sum, Tokens: p.shape.Tokens, Width: p.model.Hidden, Eps: p.model.NormEps,
	})
	add(p, "LAuReL norm", norm.Rows(a.laurelPost.kind, quant.F32), norm.RowsArgs{
		X: p.buf.out, Weight: a.laurelPost.weight, Residual: p.buf.sum, Y: p.buf.sum, Tokens: p.shape.Tokens, Width: p.model.Hidden, Eps: p.model.NormEps,
	})
	p.xChanged()
}

// correctStreams changes the streams after a layer. The scaled stream 0 is in Buffers.sum; the gate of the layer's input reads it.
func (p *planner) correctStreams(a *altUp) {
	args := p.routeStreams(a, p.buf.sum, a.correct)
	args.Y, args.Scale, args.Scaled = p.buf.sum, a.scale, p.buf.sum
	add(p, "correct streams", altup.Correct(p.model.Streams), args)
	p.xChanged()
}

// addToStreams adds the projection of the per-layer input, in Buffers.out, to all streams but the first.
func (p *planner) addToStreams(n normWeights) {
	for j := 1; j < p.model.Streams; j++ {
		x := p.stream(j)
		add(p, "layer input norm", norm.Rows(n.kind, quant.F32), norm.RowsArgs{
			X: p.buf.out, Weight: n.weight, Residual: x, Y: x, Tokens: p.shape.Tokens, Width: p.model.Hidden, Eps: p.model.NormEps,
		})
	}
}

// addStreamViews adds the views of the residual streams but the first.
func (p *planner) addStreamViews() {
	for j := 1; j < p.model.Streams; j++ {
		p.addView(View{Op: fmt.Sprintf("stream %d", j), At: p.stream(j), Width: p.model.Hidden})
	}
}
