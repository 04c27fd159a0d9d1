package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestCount(t *testing.T) {
	const src = `package p

type T[K any] struct{ Field int }
type t struct{}

func F() {}
func f() {}
func (*T[K]) M() {}
func (T[K]) m()  {}
func (t) M()     {}

const A, b = 1, 2

var (
	V int
	w int
)
`
	files := fstest.MapFS{}
	for _, name := range []string{"p/p.go", "p/internal/p.go", "p/p_test.go", "p/p_windows.go", "examples/p.go", "driver/emu/p.go"} {
		files[name] = &fstest.MapFile{Data: []byte(src)}
	}
	files["cmd/main.go"] = &fstest.MapFile{Data: []byte("package main\n\nfunc F() {}\n")}
	for limit, ok := range map[int]bool{5: true, 4: false} { // T, F, M, A, V
		var out strings.Builder
		err := run(files, &out, limit)
		if (err == nil) != ok {
			t.Errorf("limit %d: %v", limit, err)
		}
		if want := "   5 driver/emu (not in the total)\n   5 p\n   5 exported names, at most "; !strings.HasPrefix(out.String(), want) {
			t.Errorf("output %q, want %q", out.String(), want)
		}
	}
}
