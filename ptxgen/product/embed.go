package product

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Embed decodes rows of a packed matrix, the embeddings of tokens:
//
//	out[i][k] = w[tokens[i]][k]*scale + residual[i][k]
//
// Without Tokens, row i is decoded. With f(v) for v rounded to float32, and D, ŵ and o of package
// internal/product,
//
//	w = f(D·ŵ + f(D·o/32))
//
// For F32, ŵ is the sum of two float16: w = f(D·ŵ₁ + f(D·ŵ₂)). The products are exact above the smallest normal
// float32, so w is D·(ŵ + o/32) rounded once. How far that is from the weight follows from how the format is
// rounded: F16 and Q3_K weights are exact, and BF16 weights that are not far below the largest of their row. The
// product with scale and the sum with residual are rounded separately.
//
// A warp decodes a segment of a row.
func Embed(format quant.Format) kernel.Typed[EmbedArgs] {
	return kernel.New("product_embed_"+host.FormatName(format),
		func(b *ptx.Builder) (*ptx.Kernel, error) { return buildEmbed(b, format) },
		func(k *ptx.Kernel, a EmbedArgs) (ptx.Launch, error) { return launchEmbed(k, a, format) })
}

// EmbedArgs are the arguments of a launch of Embed.
type EmbedArgs struct {
	W        ptx.Address // packed [Rows, K]: see Packing
	Tokens   ptx.Address // u32 [Count], row numbers; 0: rows 0 to Count-1
	Residual ptx.Address // f32 [Count, K]; 0: none
	Out      ptx.Address // f32 [Count, K]; may be Residual
	Count    int
	Rows, K  int
	Scale    float32 // 0: 1
}

type embedParams struct {
	W                     ptx.Global `align:"16"`
	Tokens, Residual, Out ptx.Global
	Scales                ptx.Global // of rows: see Packing
	K, Segments           ptx.U32
	Scale                 ptx.F32
}

// embedWarps is the number of warps per CTA of Embed.
const embedWarps = 4

func buildEmbed(b *ptx.Builder, format quant.Format) (*ptx.Kernel, error) {
	if _, ok := layouts[format]; !ok {
		b.Failf("no kernel reads %v", format)
		return nil, b.Err()
	}
	b.Doc("out[i][k] = W[tokens[i]][k]*scale + residual[i][k], W packed, of %v", format)
	var p embedParams
	ptx.Declare(b, &p)
	device.Overlap(b)
	c := newConstants(b, layoutOf(format))
	i, seg := b.BlockX(), b.BlockY().MulN(embedWarps).Add(b.Warp())
	b.ReturnIf(seg.Ge(p.Segments))
	row := ptx.Var(i)
	b.If(device.NonNil(b, p.Tokens), func() { ptx.Set(row, p.Tokens.At(i, 4).LoadU32()) })

	// Of each 64 columns, the warp's lanes 8t to 8t+7 decode what lane 4g+t decodes in a product: steps 0 and 1,
	// 2 and 3, and so on.
	quarter, eighth := b.Lane().ShrN(3), b.Lane().AndN(7)
	from := p.W.At(row.DivN(tileRows).Mul(p.Segments).Add(seg), layoutOf(format).segmentBytes())
	r := newGlobalReader(c, format, from, row.AndN(7).ShlN(2).Add(quarter))
	r.shiftSteps(eighth)
	second := row.ShrN(3).AndN(1).EqN(1)
	var d ptx.F32
	if hasRowScale(format) {
		d = p.Scales.At(row, 4).LoadF32()
	} else {
		d = ptx.Select(second, r.d[1], r.d[0])
	}
	weights := r.row(second, d)

	start := i.MulWide(p.K).Mul(b.U64(4))
	to := device.RowAt(b, quant.F32, p.Out.AtBytes(start).Aligned(4), p.K)
	residual := device.RowAt(b, quant.F32, p.Residual.AtBytes(start).Aligned(4), p.K)
	hasResidual := device.NonNil(b, p.Residual)
	for half, v := range weights {
		at := seg.MulN(segment / 4).Add(quarter.MulN(64 / 4)).Add(eighth).AddN(half * 32 / 4)
		b.If(at.Lt(to.Vec4s()), func() {
			for n := range v {
				v[n] = ptx.Var(v[n].Mul(p.Scale))
			}
			b.If(hasResidual, func() {
				for n, x := range residual.Load(at, 0) {
					ptx.Set(v[n], v[n].Add(x))
				}
			})
			to.Store(at, v)
		})
	}
	return b.Finish(ptx.MaxThreads(lanes * embedWarps))
}

// shiftSteps makes steps 0 and 1 of a reader steps 2i and 2i+1 of the segment, where i is 0 to 7. Other steps must
// not be read. It loads the planes.
func (s *segmentReader) shiftSteps(i ptx.U32) {
	for plane, bits := range s.l.planes {
		// The lane's bytes of both steps, in each chunk of 16.
		first := i.MulN(2 * bits)
		at := s.global.Plus(s.l.start(plane)).At(first.ShrN(4), lanes*16).At(s.lane, 16)
		switch bits {
		case 16:
			s.chunks[[2]int{plane, 1}] = at.Plus(lanes * 16).LoadU32x4()
			fallthrough
		case 8:
			s.chunks[[2]int{plane, 0}] = at.LoadU32x4()
		case 4:
			pair := at.At(first.AndN(8), 1).Aligned(8).LoadU32x2()
			s.chunks[[2]int{plane, 0}] = [4]ptx.U32{pair[0], pair[1]}
		default:
			word := at.At(first.ShrN(2).AndN(3), 4).LoadU32()
			if bits == 1 { // a word has four steps: the first two in bytes 0 and 2
				word = word.Shr(i.AndN(1).ShlN(3))
			}
			s.chunks[[2]int{plane, 0}] = [4]ptx.U32{word}
		}
	}
	if s.l.scales.halfBlocks {
		first := i.Lt(s.b.U32(steps / 4))
		for _, list := range [][2][]ptx.F16x2{s.scale, s.center, s.offset} {
			for _, pairs := range list {
				if len(pairs) > 0 {
					pairs[0] = ptx.Select(first, pairs[0], pairs[1])
				}
			}
		}
	}
}

// row returns the weights of steps 0 and 1 of the lane's first or second row, which has this D: four columns, and
// the four that are 32 columns later.
func (s *segmentReader) row(second ptx.Pred, d ptx.F32) (w [2]device.Vec4) {
	own := func(a [4]ptx.F16x2, i int) []ptx.F32 { // of columns 2·step+i, and 32 columns later
		low, high := ptx.Select(second, a[2*i+1], a[2*i]).F32()
		return []ptx.F32{low, high}
	}
	var offsets []ptx.F32
	if offsetSteps(s.l.format) > 0 {
		for _, o := range own(s.operand(steps, 0), 0) {
			offsets = append(offsets, o.MulN(1.0/offsetScale))
		}
	}
	for step := range 2 {
		var operands [][4]ptx.F16x2
		for plane := range s.l.operands() {
			operands = append(operands, s.operand(step, plane))
		}
		for i := range 2 {
			rest := offsets
			if len(operands) > 1 {
				rest = own(operands[1], i)
			}
			for half, v := range own(operands[0], i) {
				if rest == nil {
					w[half][2*step+i] = d.Mul(v)
				} else {
					w[half][2*step+i] = d.FMA(v, d.Mul(rest[half]))
				}
			}
		}
	}
	return w
}

func launchEmbed(k *ptx.Kernel, a EmbedArgs, format quant.Format) (ptx.Launch, error) {
	if a.Scale == 0 {
		a.Scale = 1
	}
	if err := host.Valid(k, host.Bound("Count", a.Count, 1, host.MaxSize), host.Bound("Rows", a.Rows, 1, maxRows),
		host.Bound("K", a.K, 1, maxK), wholeBlocks(format, a.K), host.NonNil("W", a.W), host.NonNil("Out", a.Out)); err != nil {
		return ptx.Launch{}, err
	}
	p := Packing{format, a.K}
	grid := [3]uint32{uint32(a.Count), uint32(host.CeilDiv(p.segments(), embedWarps)), 1}
	return k.Launch(grid, lanes*embedWarps, 0, &embedParams{
		W: ptx.Addr(a.W), Tokens: ptx.Addr(a.Tokens), Residual: ptx.Addr(a.Residual), Out: ptx.Addr(a.Out),
		Scales: ptx.Addr(p.scales(a.W, a.Rows)), K: ptx.Uint(a.K), Segments: ptx.Uint(p.segments()), Scale: ptx.Float(a.Scale),
	})
}
