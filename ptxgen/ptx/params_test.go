package ptx_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

func TestDeclare(t *testing.T) {
	type params struct {
		X        ptx.Global `align:"16"`
		KVHeads  ptx.U32
		YStride  ptx.U64
		PageLog2 ptx.F32
	}
	type more struct{ KCache, W ptx.Global }
	k, err := build(func(b *ptx.Builder) {
		ptx.Declare(b, &params{})
		ptx.Declare(b, &more{KCache: ptx.AlignedTo(2)})
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []ptx.Param{
		{Name: "x", Type: "u64", Align: 16}, {Name: "kv_heads", Type: "u32"}, {Name: "y_stride", Type: "u64"},
		{Name: "page_log2", Type: "f32"}, {Name: "k_cache", Type: "u64", Align: 2}, {Name: "w", Type: "u64", Align: 4},
	}
	if !slices.Equal(k.Params, want) {
		t.Errorf("parameters %v, want %v", k.Params, want)
	}
}

func TestDeclareRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		params     any
	}{
		{"type", "field N of type int cannot be a parameter", &struct{ N int }{}},
		{"alignment", `align "four"`, &struct {
			X ptx.Global `align:"four"`
		}{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, c.want) {
					t.Errorf("panic %q, want one with %q", text, c.want)
				}
			}()
			ptx.Declare(ptx.New("k"), c.params)
		})
	}
}
