package product

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/ptxas"
	"github.com/lockstep-go/lockstep/internal/sizeclass"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// withoutKernels lists the formats that only the reference computes.
var withoutKernels []quant.Format

// unknown is no format.
const unknown = quant.Format(99)

func TestPackingCoversEveryFormat(t *testing.T) {
	for _, f := range quant.Formats() {
		if got, want := slices.Contains(Formats(), f), !slices.Contains(withoutKernels, f); got != want {
			t.Errorf("%v: packed %v, want %v", f, got, want)
		}
	}
}

// TestPackingSize holds what a packed row costs more than in a file. K is a multiple of 256.
func TestPackingSize(t *testing.T) {
	const rows, k = 2 * tileRows, 2048
	more := map[quant.Format]int{quant.Q3_K: 4} // bytes per block
	for _, f := range Formats() {
		size, _ := f.RowBytes(k)
		want := size + more[f]*k/256
		if f.BlockLen() < segment {
			want += 4 // the row's D
		}
		if got := (Packing{f, k}).Bytes(rows); got != rows*want {
			t.Errorf("%v: %d rows of %d weights take %d bytes packed, want %d", f, rows, k, got, rows*want)
		}
	}
}

// TestPackPads packs a part of a tile over other bytes. Rows and columns that the matrix lacks hold zeros.
func TestPackPads(t *testing.T) {
	for _, f := range Formats() {
		k := max(f.BlockLen(), 32)
		p := Packing{f, k}
		size, _ := f.RowBytes(k)
		dst := bytes.Repeat([]byte{0xff}, p.TileBytes(1))
		factors := p.Pack(dst, make([]byte, size), 1)
		zeros := make([]byte, p.TileBytes(1))
		p.Pack(zeros, make([]byte, size), 1)
		if !bytes.Equal(dst, zeros) {
			t.Errorf("%v: the packed bytes depend on what they replace", f)
		}
		if got, want := len(dst)+4*len(factors), p.Bytes(1); got != want {
			t.Errorf("%v: tiles and factors have %d bytes, a matrix has %d", f, got, want)
		}
	}
}

func TestPackRefuses(t *testing.T) {
	q8 := Packing{quant.Q8_0, 32}
	for name, pack := range map[string]func(){
		"a row of part of a block":    func() { Packing{quant.Q4_K, 128}.Bytes(1) },
		"a row of nothing":            func() { Packing{quant.F32, 0}.Bytes(1) },
		"a format that is unknown":    func() { Packing{unknown, 32}.Bytes(1) },
		"a source that is too long":   func() { q8.Pack(make([]byte, q8.TileBytes(1)), make([]byte, 35), 1) },
		"a source that is too short":  func() { q8.Pack(make([]byte, q8.TileBytes(1)), make([]byte, 33), 1) },
		"a destination that is short": func() { q8.Pack(make([]byte, q8.TileBytes(1)-1), make([]byte, 34), 1) },
		"a destination of other rows": func() { q8.Pack(make([]byte, q8.TileBytes(17)), make([]byte, 34), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("was accepted")
				}
			}()
			pack()
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, s := range map[string]kernel.Spec{
		"tokens that are no power of two": Stream{Format: quant.Q8_0, Tokens: 3, Warps: 4, Stage: 2, Ring: 2, CTAs: 1}.Kernel(),
		"a stage that divides no warps":   Stream{Format: quant.Q8_0, Tokens: 2, Warps: 4, Stage: 3, Ring: 2, CTAs: 1}.Kernel(),
		"a stream of an unknown format":   Stream{Format: unknown, Tokens: 2, Warps: 4, Stage: 2, Ring: 2, CTAs: 1}.Kernel(),
		"tokens that wgmma lacks":         Tile{Format: quant.Q8_0, Tokens: 12, Warpgroups: 1, Ring: 2, RingX: 1}.Kernel(),
		"more tokens than registers":      Tile{Format: quant.Q8_0, Tokens: 136, Warpgroups: 1, Ring: 2, RingX: 1}.Kernel(),
		"more tokens of F32":              Tile{Format: quant.F32, Tokens: 104, Warpgroups: 1, Ring: 2, RingX: 1}.Kernel(),
		"three warpgroups":                Tile{Format: quant.Q8_0, Tokens: 8, Warpgroups: 3, Ring: 2, RingX: 1}.Kernel(),
		"nothing that multiplies":         Tile{Format: quant.Q8_0, Tokens: 8, Ring: 2, RingX: 1}.Kernel(),
		"two row tiles of more registers": Tile{Format: quant.Q2_K, Tokens: 128, Warpgroups: 2, TwoRowTiles: true, Ring: 2, RingX: 1}.Kernel(),
		"two row tiles, one warpgroup":    Tile{Format: quant.Q8_0, Tokens: 8, Warpgroups: 1, TwoRowTiles: true, Ring: 2, RingX: 1}.Kernel(),
		"two row tiles of experts":        Tile{Format: quant.Q8_0, Tokens: 8, Warpgroups: 2, TwoRowTiles: true, Ring: 2, RingX: 1, Experts: true}.Kernel(),
		"two row tiles in sets":           Tile{Format: quant.Q8_0, Tokens: 8, Warps: 2, TwoRowTiles: true, Sets: 2, Ring: 4}.Kernel(),
		"two row tiles of warps":          Tile{Format: quant.Q8_0, Tokens: 8, Warps: 4, TwoRowTiles: true, RingX: 2}.Kernel(),
		"warpgroups in sets":              Tile{Format: quant.Q8_0, Tokens: 8, Warpgroups: 1, Sets: 2, Ring: 4, RingX: 1}.Kernel(),
		"one set of half a warpgroup":     Tile{Format: quant.Q8_0, Tokens: 8, Warps: 2, Sets: 1, Ring: 4}.Kernel(),
		"one set with a ring of one":      Tile{Format: quant.Q8_0, Tokens: 8, Warps: 4, Sets: 1, Ring: 1}.Kernel(),
		"one set of more tokens":          Tile{Format: quant.Q8_0, Tokens: 72, Warps: 4, Sets: 1, Ring: 4}.Kernel(),
		"one set of experts":              Tile{Format: quant.Q8_0, Tokens: 8, Warps: 4, Sets: 1, Ring: 4, Experts: true}.Kernel(),
		"one set of more registers":       Tile{Format: quant.Q2_K, Tokens: 64, Warps: 16, Sets: 1, Ring: 4}.Kernel(),
		"16 sets":                         Tile{Format: quant.Q8_0, Tokens: 8, Warps: 1, Sets: 16, Ring: 16}.Kernel(),
		"a ring for fewer sets":           Tile{Format: quant.Q8_0, Tokens: 8, Warps: 2, Sets: 5, Ring: 4}.Kernel(),
		"sets of more warps":              Tile{Format: quant.Q8_0, Tokens: 16, Warps: 5, Sets: 5, Ring: 5}.Kernel(),
		"sets with two rings":             Tile{Format: quant.Q8_0, Tokens: 8, Warps: 2, Sets: 4, Ring: 4, RingX: 4}.Kernel(),
		"sets of more tokens":             Tile{Format: quant.Q8_0, Tokens: 40, Warps: 4, Sets: 4, Ring: 4}.Kernel(),
		"a ring of one segment":           Tile{Format: quant.Q8_0, Tokens: 8, Warpgroups: 1, Ring: 1, RingX: 1}.Kernel(),
		"an unknown activation":           Stream{Format: quant.Q8_0, Tokens: 2, Warps: 4, Stage: 2, Ring: 2, CTAs: 1, Epilogue: Epilogue{Activation: 4}}.Kernel(),
		"clamped SwiGLU without up":       Stream{Format: quant.Q8_0, Tokens: 2, Warps: 4, Stage: 2, Ring: 2, CTAs: 1, Epilogue: Epilogue{Activation: elementwise.ClampedSwiGLU}}.Kernel(),
		"experts for several tokens":      Stream{Format: quant.Q8_0, Tokens: 2, Warps: 4, Stage: 2, Ring: 2, CTAs: 1, Experts: true}.Kernel(),
		"embeddings of an unknown format": Embed(unknown),
		"warps and warpgroups":            Tile{Format: quant.Q8_0, Tokens: 8, Warpgroups: 1, Warps: 4, RingX: 2}.Kernel(),
		"nine warps":                      Tile{Format: quant.Q8_0, Tokens: 8, Warps: 9, RingX: 2}.Kernel(),
		"-1 warps":                        Tile{Format: quant.Q8_0, Tokens: 8, Warps: -1, RingX: 2}.Kernel(),
		"warps with a ring of weights":    Tile{Format: quant.Q8_0, Tokens: 8, Warps: 4, Ring: 2, RingX: 2}.Kernel(),
		"warps that wait for each copy":   Tile{Format: quant.Q8_0, Tokens: 8, Warps: 4, RingX: 1}.Kernel(),
		"sums that the format lacks":      Tile{Format: quant.Q4_K, Tokens: 8, Warpgroups: 1, Ring: 2, RingX: 1, XSumLayouts: 2}.Kernel(),
		"four offset steps":               Tile{Format: quant.Q8_0, Tokens: 8, Warpgroups: 1, Ring: 2, RingX: 1, XSumLayouts: 4}.Kernel(),
		"one of two that is no kernel":    Beside(Tile{Format: quant.Q8_0, Tokens: 8, Warps: 4, RingX: 2}, Tile{Format: quant.Q8_0, Tokens: 8, Warps: 9, RingX: 2}),
		"rounding of no tokens":           Tile{Format: quant.Q8_0}.Round(),
	} {
		if _, err := s.Build(); err == nil {
			t.Errorf("%s: %+v was built", name, s)
		}
	}
}

func TestLaunchRefuses(t *testing.T) {
	plain := Stream{Format: quant.Q8_0, Tokens: 2, Warps: 4, Stage: 2, Ring: 2, CTAs: 1}
	capped, gated, normed := plain, plain, plain
	capped.Epilogue.Softcap, gated.Epilogue.Gated, normed.Epilogue.Norm = true, true, true
	experts := plain
	experts.Experts, experts.Tokens = true, 1
	tile := Tile{Format: quant.Q8_0, Tokens: 8, Warpgroups: 1, Ring: 2, RingX: 1}
	expertTile := tile
	expertTile.Experts = true
	chosen := func(a *Args) { a.Tokens, a.Experts, a.Slots, a.SlotsPerX, a.ExpertBytes = 1, 16, 6, 2, 4096 }
	good := Args{X: 16, W: 16, Y: 16, Tokens: 2, Rows: 32, K: 64, CTAs: 1}
	for _, c := range []struct {
		name, want string
		kernel     interface{ Kernel() kernel.Typed[Args] }
		change     func(a *Args)
	}{
		{"no epilogue", "", plain, func(a *Args) {}},
		{"a softcap", "", capped, func(a *Args) { a.Softcap = 30 }},
		{"half the columns", "", gated, func(a *Args) { a.YStride = 16 }},
		{"more tokens than columns", "Tokens: 3", plain, func(a *Args) { a.Tokens = 3 }},
		{"part of a block", "K: 63", plain, func(a *Args) { a.K = 63 }},
		{"rows that overlap", "YStride: 31", plain, func(a *Args) { a.YStride = 31 }},
		{"half rows that overlap", "YStride: 15", gated, func(a *Args) { a.YStride = 15 }},
		{"rows of gate alone", "Rows: 31", gated, func(a *Args) { a.Rows = 31 }},
		{"a softcap that the kernel lacks", "Softcap: 30", plain, func(a *Args) { a.Softcap = 30 }},
		{"no softcap", "Softcap: 0", capped, func(a *Args) {}},
		{"a negative softcap", "Softcap: -1", capped, func(a *Args) { a.Softcap = -1 }},
		{"a norm", "", normed, func(a *Args) { a.NormWeight, a.Eps = 16, 1e-5 }},
		{"a norm that the kernel lacks", "NormWeight: ", plain, func(a *Args) { a.NormWeight = 16 }},
		{"no weights of a norm", "NormWeight: ", normed, func(a *Args) {}},
		{"eps without a norm", "Eps: 1", plain, func(a *Args) { a.Eps = 1 }},
		{"a negative eps", "Eps: -1", normed, func(a *Args) { a.NormWeight, a.Eps = 16, -1 }},
		{"experts", "", experts, chosen},
		{"experts that the kernel lacks", "Experts: ", plain, func(a *Args) { a.Experts = 16 }},
		{"no experts", "Experts: ", experts, func(a *Args) { chosen(a); a.Experts = 0 }},
		{"slots without experts", "Slots: 2", plain, func(a *Args) { a.Slots = 2 }},
		{"no slots", "Slots: 0", experts, func(a *Args) { chosen(a); a.Slots = 0 }},
		{"more results than 32 bits count", "Slots: 4096", experts, func(a *Args) { chosen(a); a.Slots, a.YStride = 4096, 1<<20 }},
		{"no slot per row", "SlotsPerX: 0", experts, func(a *Args) { chosen(a); a.SlotsPerX = 0 }},
		{"factors of slots without a norm", "SlotFactors: ", experts, func(a *Args) { chosen(a); a.SlotFactors = 16 }},
		{"factors of slots that rounding has", "SlotFactors: ", expertTile, func(a *Args) { a.Tokens, a.Experts, a.ExpertBytes, a.SlotFactors = 16, 16, 4096, 16 }},
		{"experts that are not aligned", "ExpertBytes: 40", experts, func(a *Args) { chosen(a); a.ExpertBytes = 40 }},
		{"many tokens", "", tile, func(a *Args) {}},
		{"many tokens with experts that the kernel lacks", "Experts: ", tile, func(a *Args) { a.Experts = 16 }},
		{"many slots", "", expertTile, func(a *Args) { a.Tokens, a.Experts, a.ExpertBytes = 16, 16, 4096 }},
		{"many slots without routes", "Experts: ", expertTile, func(a *Args) { a.Tokens = 16 }},
		{"slots that the routes name", "Slots: ", expertTile, chosen},
		{"many tokens that are not aligned", "X: 0x18", tile, func(a *Args) { a.X = 24 }},
		{"tokens that are not aligned", "X: 0x18", plain, func(a *Args) { a.X = 24 }},
		{"a norm that rounding has", "NormWeight: ", tile, func(a *Args) { a.NormWeight = 16 }},
		{"no result", "Y: no address", plain, func(a *Args) { a.Y = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, spec := good, c.kernel.Kernel()
			k, err := spec.Build()
			if err != nil {
				t.Fatal(err)
			}
			c.change(&a)
			if _, err := spec.Launch(k, a); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestRoundRefusesPartialBlocks: kernels with offset steps load whole blocks.
func TestRoundRefusesPartialBlocks(t *testing.T) {
	for steps, blockLen := range []int{1, 32, 256, 256} {
		spec := Tile{Format: quant.F16, Tokens: 8, Warpgroups: 1, Ring: 2, RingX: 1, XSumLayouts: steps}.Round()
		k, err := spec.Build()
		if err != nil {
			t.Fatal(err)
		}
		a := RoundArgs{X: 1 << 20, Y: 1 << 21, Tokens: 3, K: 3 * blockLen}
		if _, err := spec.Launch(k, a); err != nil {
			t.Errorf("%d offset steps, %d columns: %v", steps, a.K, err)
		}
		if a.K++; blockLen > 1 {
			if _, err := spec.Launch(k, a); err == nil || !strings.Contains(err.Error(), "K: ") {
				t.Errorf("%d offset steps, %d columns: error %v, want one that names K", steps, a.K, err)
			}
		}
	}
}

// TestMinTarget: a model runs on sm_80 with these kernels.
func TestMinTarget(t *testing.T) {
	for _, f := range Formats() {
		tile := Tile{Format: f, Tokens: 8, Warps: 4, RingX: 2}
		for _, s := range []kernel.Spec{tile.Kernel(), tile.Round(), Embed(f)} {
			k, err := s.Build()
			if err != nil {
				t.Fatal(err)
			}
			if k.MinTarget.SM != 80 || k.MinTarget.Arch {
				t.Errorf("%s needs %v, want sm_80", k.Name, k.MinTarget)
			}
		}
	}
}

// assembly is a list of kernels to assemble.
type assembly struct {
	t     *testing.T
	jobs  []ptxas.Job
	names []string
}

// add adds a kernel for some targets, unless it has been added.
func (a *assembly) add(s kernel.Spec, targets ...string) {
	if slices.Contains(a.names, s.Name()) {
		return
	}
	k, err := s.Build()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, name := range targets {
		target, err := ptx.ParseTarget(name)
		if err != nil {
			a.t.Fatal(err)
		}
		text, err := k.Text(target)
		if err != nil {
			a.t.Fatal(err)
		}
		a.jobs, a.names = append(a.jobs, ptxas.Job{Text: text, Target: name}), append(a.names, s.Name())
	}
}

// check assembles the kernels, without spills or warnings.
func (a *assembly) check(as *ptxas.Assembler) {
	for i, o := range as.AssembleAll(a.jobs) {
		if o.Err != nil {
			a.t.Errorf("%s for %s: %v", a.names[i], a.jobs[i].Target, o.Err)
			continue
		}
		if err := o.Reports[a.names[i]].Check(a.names[i]); err != nil {
			a.t.Errorf("%s: %v", a.jobs[i].Target, err)
		}
	}
}

// TestAssembleChosen assembles the Tiles that TilesFor chooses for matrices of common sizes.
func TestAssembleChosen(t *testing.T) {
	as := ptxas.Need(t)
	a := &assembly{t: t}
	for _, f := range Formats() {
		for tokens := 5; tokens <= 2048; tokens++ {
			if tokens != sizeclass.Of(tokens) {
				continue
			}
			add := func(like Tile, rows int) {
				a.add(tileFor(f, like, tokens, rows, hopper, chosenSMs, chosenShared).Kernel(), "sm_90a")
			}
			norm := Epilogue{Norm: true}
			gated := Epilogue{Norm: true, Activation: elementwise.SiLU, Gated: true}
			for _, rows := range []int{1536, 2048, 3072, 4096, 6144, 12288, 128256} {
				add(Tile{Epilogue: norm}, rows)
			}
			for _, rows := range []int{14336, 16384, 28672} {
				add(Tile{Epilogue: gated}, rows)
			}
			for _, rows := range []int{4, 256000} { // the router of AltUp, and a head
				add(Tile{Epilogue: Epilogue{Norm: true, Softcap: true}}, rows)
			}
			if tokens <= 128 {
				add(Tile{Epilogue: norm, Experts: true}, 128*1536)
				add(Tile{Epilogue: gated, Experts: true}, 128*1536)
			}
		}
	}
	t.Logf("%d kernels", len(a.jobs))
	a.check(as)
}

// TestAssemble assembles the largest kernels of every format.
func TestAssemble(t *testing.T) {
	as := ptxas.Need(t)
	a := &assembly{t: t}
	add := a.add
	for _, f := range Formats() {
		all := Epilogue{Norm: true, Activation: elementwise.GELU, Gated: true}
		head := Epilogue{Norm: true, Softcap: true}
		for _, e := range []Epilogue{{}, all, head} {
			for _, two := range []bool{false, true} {
				tokens, ring := maxTileTokensOf(f), 3
				if two {
					ring, tokens = 2, min(tokens, Tile{Format: f}.maxTokensOfTwoRowTiles())
				}
				add(Tile{Format: f, Tokens: tokens, Warpgroups: 2, TwoRowTiles: two, Ring: ring, RingX: 2, Epilogue: e}.Kernel(), "sm_90a")
			}
			for _, c := range []struct{ tokens, warps int }{{16, 4}, {32, 2}, {32, 4}} {
				if e == head {
					continue // TestAssembleChosen has those that an engine asks for
				}
				s := Tile{Format: f, Tokens: c.tokens, Warps: c.warps, Epilogue: e}
				s.Sets = s.maxWarpsByRegisters() / s.Warps
				s.Ring = s.Sets
				add(s.Kernel(), "sm_90a")
			}
			for _, tokens := range []int{16, 32, 64} {
				s := Tile{Format: f, Tokens: tokens, Warps: oneSetWarps, Sets: 1, Ring: oneSetRing, Epilogue: e}
				if s.Warps <= s.maxWarpsByRegisters() {
					add(s.Kernel(), "sm_90a")
				}
			}
		}
		add(Stream{Format: f, Tokens: 1, Warps: 16, Stage: 4, Ring: 2, CTAs: 2, Experts: true, Epilogue: all}.Kernel(), "sm_90")
		add(Stream{Format: f, Tokens: 8, Warps: 16, Stage: 8, Ring: 2, CTAs: 1, Epilogue: all}.Kernel(), "sm_90")
		add(Stream{Format: f, Tokens: 1, Warps: 8, Stage: 4, Ring: 2, CTAs: 2}.Kernel(), "sm_90")
		add(Stream{Format: f, Tokens: 8, Warps: 16, Stage: 8, Ring: 2, CTAs: 1}.Kernel(), "sm_90")
		add(Tile{Format: f, Tokens: 64, Warps: 8, RingX: 2}.Kernel(), "sm_80", "sm_89")
		add(Tile{Format: f, Tokens: maxTileTokensOf(f), Warps: 8, RingX: 2}.Kernel(), "sm_80")
		add(Embed(f), "sm_80", "sm_90")
		var streams []Stream // the one with most threads, beside one that may have more registers
		for _, f := range []quant.Format{quant.Q4_K, f} {
			s, ok := StreamFor(f, Epilogue{Norm: true}, 4, 2048, hopper, chosenShared)
			if !ok {
				t.Errorf("%v: no Stream", f)
			}
			streams = append(streams, s)
		}
		add(Beside(streams...), "sm_90")
		for _, tokens := range []int{16, 128, 2048} {
			tiles := TilesFor([]quant.Format{quant.Q4_K, f}, Tile{Epilogue: Epilogue{Norm: true}}, tokens, 6144, hopper, chosenSMs, chosenShared)
			add(Beside(tiles...), "sm_90a")
		}
	}
	for _, f := range []quant.Format{quant.Q8_0, quant.Q4_K, quant.Q2_K} { // no offsets, one step of them, and two
		add(Tile{Format: f, Tokens: 128}.Round(), "sm_80", "sm_90")
		add(Tile{Format: f, Tokens: 128, Epilogue: Epilogue{Norm: true}}.Round(), "sm_80", "sm_90")
	}
	add(Tile{Format: quant.Q8_0, Tokens: 128, XSumLayouts: allXSumLayouts}.Round(), "sm_80", "sm_90")
	a.check(as)
}
