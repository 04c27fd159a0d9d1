package ptxgen_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/altup"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/deltanet"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/peak"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
)

// derived are the parameters whose values a launch computes from several arguments.
var derived = []string{
	"grid", "parts", "vectors", "units", "span", "chunk", "split_log2", "share", // cut up the work
	"segments", "columns", "scales", "tiles", "extra", "sum_buffers", "reciprocal", "step_tiles", "step_segments", "row_tiles", "token_tiles", "output_tiles", "factors", // products
	"sums", "group", "head_parts", "scale_log2e", "scale_by_cap", "cap_log2e", "keys_log2", "max_splits", "chunk_mask", // attention
	"half", "step", "gap", // RoPE
	"n", "run", // moe.Group
	"channels", "all_heads", "unit_heads", "heads_per_key", "window", "rows", "count", // deltanet
	"slices",                                                                         // argmax
	"deviations",                                                                     // norm.Sparsify
	"best", "sums", "bin_sums", "bin_counts", "bounds", "candidates", "tops", "keys", // parts of sample.Args.Scratch
}

// partNumber ends the names of parameters of kernels with parts.
var partNumber = regexp.MustCompile(`_[0-9]+$`)

// A launch passes each argument in the parameter of its name: for every kernel, with
// arguments that all differ, each packed parameter has the value of the field of its name.
func TestParams(t *testing.T) {
	for _, s := range ptxgen.Reachable() {
		t.Run(s.Name(), func(t *testing.T) {
			k := build(t, s)
			l, fields := launchDistinct(t, s, k)
			for name, v := range packed(l) {
				base := partNumber.ReplaceAllString(name, "")
				if slices.Contains(derived, base) && !(base == "n" && fields["n"] != 0) {
					continue
				}
				want, ok := fields[name]
				if !ok { // the parts of a launch have the same arguments
					want, ok = fields[base]
				}
				if !ok {
					t.Errorf("parameter %s: no argument has this name", name)
				} else if v != want {
					t.Errorf("parameter %s is %#x, want %#x", name, v, want)
				}
			}
		})
	}
}

// launchDistinct launches a kernel with arguments that all differ. It returns the launch and
// the bits of the arguments by the names that parameters have.
func launchDistinct(t *testing.T, s kernel.Spec, k *ptx.Kernel) (ptx.Launch, map[string]uint64) {
	paged := attention.PagedKV{KVHeads: 2, MaxPages: 9}
	scoring := attention.Scoring{Scale: 0.25, Softcap: 30, Window: 77}
	normed, experts := strings.Contains(s.Name(), "_norm"), strings.Contains(s.Name(), "_experts")
	switch s := s.(type) {
	case kernel.Typed[peak.ReadArgs]:
		return launch(t, s, k, peak.ReadArgs{Bytes: 160, CTAs: 2})
	case kernel.Typed[peak.BulkReadArgs]:
		return launch(t, s, k, peak.BulkReadArgs{Chunks: 3, CTAs: 2})
	case kernel.Typed[peak.MMAArgs]:
		return launch(t, s, k, peak.MMAArgs{Iterations: 3, CTAs: 2})
	case kernel.Typed[peak.WGMMAArgs]:
		return launch(t, s, k, peak.WGMMAArgs{Iterations: 3, CTAs: 2})
	case kernel.Typed[norm.RowsArgs]:
		return launch(t, s, k, norm.RowsArgs{Tokens: 3, Heads: 5, Width: 64, XStride: 400, YStride: 444, WeightStride: 68, Eps: 1e-5, Scale: 2})
	case kernel.Typed[elementwise.FusedArgs]:
		return launch(t, s, k, elementwise.FusedArgs{
			Rows: 3, Width: 100, XStride: 104, UpStride: 108, YStride: 112, Scale: 2, Cap: 30, Activation: elementwise.GELU,
		})
	case kernel.Typed[rope.AppendArgs]:
		return launch(t, s, k, rope.AppendArgs{
			QStride: 512, KStride: 516, VStride: 520, Tokens: 7, Heads: 4, KVHeads: 2, HeadDim: 64, ValueDim: 48, Rot: 32, NeoX: true,
			MaxPages: 9, Factor: 1.5, Eps: 1e-6, QScaleBlock: 11, QScaleOffset: 13,
		})
	case kernel.Typed[sample.ArgmaxArgs]:
		return launch(t, s, k, sample.ArgmaxArgs{Rows: 2, Vocab: 5000, Stride: 5004})
	case kernel.Typed[sample.ArgmaxMergeArgs]:
		return launch(t, s, k, sample.ArgmaxMergeArgs{Rows: 2, Vocab: 5000})
	case kernel.Typed[sample.Args]:
		return launch(t, s, k, sample.Args{Rows: 2, Vocab: 5000, Stride: 5004, MaxBiases: 7})
	case kernel.Typed[deltanet.InputsArgs]:
		return launch(t, s, k, deltanet.InputsArgs{XStride: 6000, Eps: 1e-6, Shape: netShape, Batch: netBatch})
	case kernel.Typed[deltanet.RecurArgs]:
		return launch(t, s, k, deltanet.RecurArgs{InputsStride: 6000, Shape: netShape, Batch: netBatch})
	case kernel.Typed[deltanet.GatedNormArgs]:
		return launch(t, s, k, deltanet.GatedNormArgs{ZStride: 6000, Eps: 1e-6, Tokens: 7, Shape: netShape})
	case kernel.Typed[moe.RouteArgs]:
		return launch(t, s, k, moe.RouteArgs{Tokens: 5, Experts: 60, Stride: 64, K: 4, Normalize: true, Scale: 2.5})
	case kernel.Typed[moe.GroupArgs]:
		return launch(t, s, k, moe.GroupArgs{Tokens: 3, K: 2, Experts: 8})
	case kernel.Typed[moe.CombineArgs]:
		return launch(t, s, k, moe.CombineArgs{Tokens: 3, K: 2, Width: 1025})
	case kernel.Typed[altup.Args]:
		without := []string(nil)
		if strings.Contains(s.Name(), "predict") {
			without = []string{"Y", "Scale", "Scaled"}
		}
		return launch(t, s, k, altup.Args{Stride: 5000, Tokens: 3, Width: 1025}, without...)
	case kernel.Typed[altup.ScaleToArgs]:
		return launch(t, s, k, altup.ScaleToArgs{Rows: 3, Width: 1025, Scale: 0.25})
	case kernel.Typed[norm.SparsifyArgs]:
		return launch(t, s, k, norm.SparsifyArgs{Rows: 3, Width: 1025, Sparsity: 1.5})
	case kernel.Typed[moe.CombineNormedArgs]:
		return launch(t, s, k, moe.CombineNormedArgs{Tokens: 3, K: 2, Width: 1025, Eps: 1e-6, Scale: 0.5})
	case kernel.Typed[attention.DecodeArgs]:
		a := attention.DecodeArgs{KV: paged, Scoring: scoring, Sequences: 3, Heads: 8, QStride: 4096, OutStride: 4100, Pages: 7, SMs: 132}
		if !strings.Contains(s.Name(), "_append") {
			a.Fresh = 5
			return launch(t, s, k, a, "Append", "Rotated")
		}
		fields := distinct(t, &a, 0, []string{"Append"})
		dim, err := strconv.Atoi(s.Name()[strings.LastIndex(s.Name(), "_d")+2:])
		if err != nil {
			t.Fatal(err)
		}
		a.Append = rope.AppendArgs{
			Q: a.Q, QStride: a.QStride, KStride: 4104, VStride: 4108, Lengths: a.KV.Lengths, Table: a.KV.Table, KCache: a.KV.K, VCache: a.KV.V,
			Tokens: 3, Heads: 8, KVHeads: 2, HeadDim: dim, Rot: 28, NeoX: true, MaxPages: 9, Factor: 1.5, Eps: 1e-6, QScaleBlock: 11, QScaleOffset: 13,
		}
		for name, bits := range distinct(t, &a.Append, len(fields), []string{"Q", "Lengths", "Table", "KCache", "VCache"}) {
			fields[name] = bits
		}
		l, err := s.Launch(k, a)
		if err != nil {
			t.Fatal(err)
		}
		return l, fields
	case kernel.Typed[attention.CombineArgs]:
		return launch(t, s, k, attention.CombineArgs{Sequences: 3, Heads: 8, OutStride: 4096, MaxSplits: 9, SplitKeys: 256, Scoring: scoring})
	case kernel.Typed[attention.PrefillArgs]:
		return launch(t, s, k, attention.PrefillArgs{
			KV: paged, Scoring: scoring, Sequences: 3, Heads: 8, QStride: 4096, OutStride: 4100, MaxQueries: 300,
		})
	case kernel.Typed[product.EmbedArgs]:
		return launch(t, s, k, product.EmbedArgs{Count: 3, Rows: 32, K: 512, Scale: 2})
	case kernel.Typed[product.RoundArgs]:
		a, without := product.RoundArgs{Tokens: 3, K: 512}, []string(nil)
		if experts {
			a.Experts, a.SlotsPerX = 7, 2
		} else {
			without = []string{"Offsets", "Order", "Routes"}
		}
		if normed {
			a.Eps = 1e-5
		} else {
			without = append(without, "NormWeight")
		}
		if !experts || !normed {
			without = append(without, "SlotFactors")
		}
		return launch(t, s, k, a, without...)
	case kernel.Typed[product.Args]:
		a, without := productArgs(s.Name())
		return launch(t, s, k, a, without...)
	case kernel.Typed[[]product.Args]:
		return launchParts(t, s, k)
	}
	t.Fatalf("no arguments for %T", s)
	return ptx.Launch{}, nil
}

// productArgs returns the arguments of a product, and the addresses that it does not take.
func productArgs(kernel string) (a product.Args, without []string) {
	a = product.Args{YStride: 400, Tokens: 1, Rows: 320, K: 512, CTAs: 3}
	stream := strings.Contains(kernel, "stream")
	normed, experts := strings.Contains(kernel, "_norm") && stream, strings.Contains(kernel, "_experts")
	if normed {
		a.Eps = 1e-5
	} else {
		without = append(without, "NormWeight")
	}
	if !normed || !experts {
		without = append(without, "SlotFactors")
	}
	switch {
	case !experts:
		without = append(without, "Experts")
	case stream:
		a.Slots, a.SlotsPerX = 5, 2
		fallthrough
	default:
		a.ExpertBytes = 1 << 20
	}
	return a, without
}

// launchParts is launch of two products side by side. The names of parameters end with the number of the product.
func launchParts(t *testing.T, s kernel.Typed[[]product.Args], k *ptx.Kernel) (ptx.Launch, map[string]uint64) {
	t.Helper()
	all := make([]product.Args, 2)
	fields := map[string]uint64{}
	for i := range all {
		a, without := productArgs(s.Name())
		a.YStride, a.Rows, a.K = a.YStride<<i, a.Rows<<i, a.K<<i
		for name, bits := range distinct(t, &a, len(fields), without) {
			fields[fmt.Sprintf("%s_%d", name, i)] = bits
		}
		all[i] = a
	}
	l, err := s.Launch(k, all)
	if err != nil {
		t.Fatal(err)
	}
	return l, fields
}

// launch launches k with the arguments a, which distinct completes.
func launch[A any](t *testing.T, s interface {
	Launch(*ptx.Kernel, A) (ptx.Launch, error)
}, k *ptx.Kernel, a A, without ...string) (ptx.Launch, map[string]uint64) {
	t.Helper()
	fields := distinct(t, &a, 0, without)
	l, err := s.Launch(k, a)
	if err != nil {
		t.Fatal(err)
	}
	if scratch, ok := fields["scratch"]; ok && packed(l)["sums"] != scratch {
		t.Errorf("parameter sums is %#x, want %#x", packed(l)["sums"], scratch)
	}
	return l, fields
}

// distinct sets each address field of the arguments that a points to to a different address, the first of them to
// address number first, except for the fields that without names. It returns the bits of all fields. Arguments that the
// kernel does not take are 0.
func distinct(t *testing.T, a any, first int, without []string) map[string]uint64 {
	t.Helper()
	fields, seen := map[string]uint64{}, map[uint64]string{}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		for i := range v.NumField() {
			f, name := v.Field(i), v.Type().Field(i).Name
			var bits uint64
			switch f.Kind() {
			case reflect.Struct:
				if !slices.Contains(without, name) {
					walk(f)
				}
				continue
			case reflect.Uint64:
				if !slices.Contains(without, name) {
					f.SetUint(uint64(1+first+len(fields)) << 24)
				}
				bits = f.Uint()
			case reflect.Uint32:
				bits = f.Uint()
			case reflect.Int, reflect.Int64:
				bits = uint64(f.Int())
			case reflect.Float32:
				bits = uint64(math.Float32bits(float32(f.Float())))
			case reflect.Bool:
				fields[snakeCase(name)] = 1
				continue
			}
			if other, ok := seen[bits]; ok && bits != 0 && f.Kind() != reflect.Uint32 {
				t.Fatalf("the arguments %s and %s are equal", name, other)
			}
			if f.Kind() != reflect.Uint32 { // an enumeration has few values
				seen[bits] = name
			}
			fields[snakeCase(name)] = bits
		}
	}
	walk(reflect.ValueOf(a).Elem())
	return fields
}

// packed returns the values of a launch's parameters by name.
func packed(l ptx.Launch) map[string]uint64 {
	values, at := map[string]uint64{}, 0
	for _, p := range l.Kernel.Params {
		if p.Type == "u64" {
			at = (at + 7) / 8 * 8
			values[p.Name] = binary.LittleEndian.Uint64(l.Params[at:])
			at += 8
			continue
		}
		values[p.Name] = uint64(binary.LittleEndian.Uint32(l.Params[at:]))
		at += 4
	}
	return values
}

// snakeCase returns the name of the parameter for an argument.
func snakeCase(name string) string {
	var s []byte
	for i := range len(name) {
		upper := func(i int) bool { return i < len(name) && name[i] >= 'A' && name[i] <= 'Z' }
		if i > 0 && upper(i) && (!upper(i-1) || i+1 < len(name) && !upper(i+1)) {
			s = append(s, '_')
		}
		s = append(s, name[i])
	}
	return strings.ToLower(string(s))
}
