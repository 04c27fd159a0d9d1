package emu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// sm80 is for kernels without Hopper instructions.
const sm80 = ".version 7.4\n.target sm_80\n.address_size 64\n"

// sm90 is for kernels with Hopper instructions.
const sm90 = ".version 8.0\n.target sm_90\n.address_size 64\n"

// kernelRun is one launch of a kernel whose parameters are buffers of 32-bit words, or numbers.
type kernelRun struct {
	opts   Options
	ptx    string
	entry  string // "" is k
	grid   int    // CTAs; 0 is 1
	block  int    // threads; 0 is 32
	shared uint32
	args   []any // []uint32: a buffer with these words; int: an undefined buffer of that number of words; uint32, uint64: a number
}

// run returns the words of all buffers after the kernel, or its error.
func (r kernelRun) run(t testing.TB) ([][]uint32, error) {
	t.Helper()
	out, _, err := r.runOnDevice(t)
	return out, err
}

func (r kernelRun) runOnDevice(t testing.TB) ([][]uint32, *Device, error) {
	t.Helper()
	d, err := Open(r.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Load([]byte(r.ptx))
	if err != nil {
		return nil, d, err
	}
	name := r.entry
	if name == "" {
		name = "k"
	}
	f, err := m.Function(name)
	if err != nil {
		t.Fatal(err)
	}
	params, buffers := r.params(t, d, s)
	l := driver.Launch{
		Function: f, Grid: driver.Dim3{X: uint32(max(r.grid, 1)), Y: 1, Z: 1}, Block: driver.Dim3{X: 32, Y: 1, Z: 1},
		Shared: r.shared, Params: params,
	}
	if r.block != 0 {
		l.Block.X = uint32(r.block)
	}
	if err := s.Launch(l); err != nil {
		return nil, d, err
	}
	if err := s.Synchronize(); err != nil {
		return nil, d, err
	}
	var out [][]uint32
	for _, buf := range buffers {
		out = append(out, words(t, s, buf))
	}
	return out, d, nil
}

// params encodes the arguments and makes the buffers among them.
func (r kernelRun) params(t testing.TB, d *Device, s driver.Stream) (params []byte, buffers []driver.Buffer) {
	t.Helper()
	for _, a := range r.args {
		switch v := a.(type) {
		case uint32:
			params = binary.LittleEndian.AppendUint32(params, v)
		case uint64:
			params = binary.LittleEndian.AppendUint64(params, v)
		default:
			buf := buffer32(t, d, s, v)
			buffers = append(buffers, buf)
			for len(params)%8 != 0 {
				params = append(params, 0)
			}
			params = binary.LittleEndian.AppendUint64(params, uint64(buf.Address()))
		}
	}
	return params, buffers
}

// buffer32 makes a buffer from words, or an undefined buffer of a number of words.
func buffer32(t testing.TB, d *Device, s driver.Stream, content any) driver.Buffer {
	t.Helper()
	n := 0
	var data []byte
	switch v := content.(type) {
	case int:
		n = v
	case []uint32:
		n = len(v)
		for _, w := range v {
			data = binary.LittleEndian.AppendUint32(data, w)
		}
	default:
		t.Fatalf("no buffer from %T", content)
	}
	buf, err := d.Alloc(int64(4 * n))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(buf.Address(), data); err != nil {
		t.Fatal(err)
	}
	return buf
}

func words(t testing.TB, s driver.Stream, buf driver.Buffer) []uint32 {
	t.Helper()
	raw := make([]byte, len(buf.(*buffer).seg.data))
	if err := s.Read(raw, buf.Address()); err != nil {
		t.Fatal(err)
	}
	out := make([]uint32, len(raw)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return out
}

// lineOf returns the number of the line that contains part, from 1.
func lineOf(t testing.TB, text, part string) int {
	t.Helper()
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(line, part) {
			return i + 1
		}
	}
	t.Fatalf("no line with %q", part)
	return 0
}

// wantTrap checks that err is a trap of a kind at a line and lane, and is driver.ErrDeviceLost.
func wantTrap(t testing.TB, err error, kind TrapKind, line, lane int) *Trap {
	t.Helper()
	var trap *Trap
	if !errors.As(err, &trap) || !errors.Is(err, driver.ErrDeviceLost) {
		t.Fatalf("want a trap (%s), got %v", kind, err)
	}
	if trap.Kind != kind || trap.Line != line || trap.Lane != lane || trap.Kernel != "k" {
		t.Fatalf("want %s of kernel k at line %d lane %d, got %v", kind, line, lane, err)
	}
	return trap
}

// perThread is a kernel in which every thread computes %r0 from its number %r1 and stores it in the
// buffer out.
func perThread(header, decls, body string) string {
	return header + fmt.Sprintf(`
.extern .shared .align 16 .b8 dyn[];
.visible .entry k(.param .u64 .ptr .global .align 16 out)
{
	.reg .pred %%p<8>;
	.reg .b16 %%h<8>;
	.reg .b32 %%r<40>;
	.reg .f32 %%f<8>;
	.reg .b64 %%rd<16>;
	.reg .f64 %%fd<8>;
%s
	ld.param.u64 %%rd0, [out];
	mov.u32 %%r1, %%tid.x;
	mul.wide.u32 %%rd1, %%r1, 4;
	add.u64 %%rd1, %%rd0, %%rd1;
%s
	st.global.u32 [%%rd1], %%r0;
	ret;
}
`, decls, body)
}

// same returns n equal words.
func same(n int, v uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// replaceLine replaces the line that contains mark.
func replaceLine(text, mark, with string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.Contains(line, mark) {
			lines[i] = with
		}
	}
	return strings.Join(lines, "\n")
}

// scalarCase is a body for perThread and the expected %r0.
type scalarCase struct {
	name string
	body string
	want func(tid uint32) uint32
}

func runScalar(t *testing.T, header string, cases []scalarCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, err := kernelRun{ptx: perThread(header, "", c.body), args: []any{32}}.run(t)
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range out[0] {
				if want := c.want(uint32(i)); got != want {
					t.Fatalf("thread %d: got %#08x, want %#08x", i, got, want)
				}
			}
		})
	}
}

// f32 returns the bits of a float32.
func f32(f float32) uint32 { return math.Float32bits(f) }

func always(v uint32) func(uint32) uint32 { return func(uint32) uint32 { return v } }

// trapCase is a kernel with a planted bug in the line marked BUG. In the corrected kernel the line
// is replaced by fixed.
type trapCase struct {
	name   string
	kind   TrapKind
	lane   int
	decls  string
	body   string
	fixed  string
	block  int
	grid   int
	opts   Options
	args   []any // parameters after out, which has one word per thread
	header string
	where  string // part of the line that traps; "" is the line marked BUG
}

func (c trapCase) faulty() string { return c.kernel(c.body) }

func (c trapCase) corrected() string {
	lines := strings.Split(c.body, "\n")
	for i, line := range lines {
		if strings.Contains(line, "// BUG") {
			lines[i] = c.fixed
		}
	}
	return c.kernel(strings.Join(lines, "\n"))
}

func (c trapCase) kernel(body string) string {
	header := c.header
	if header == "" {
		header = sm80
	}
	text := perThread(header, c.decls, body)
	for range c.args {
		text = strings.Replace(text, "align 16 out)", "align 16 out, .param .u64 .ptr .global .align 16 in)", 1)
	}
	return text
}

func runTraps(t *testing.T, cases []trapCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := max(c.block, 32) * max(c.grid, 1)
			r := kernelRun{opts: c.opts, ptx: c.faulty(), block: c.block, grid: c.grid, args: append([]any{n}, c.args...)}
			where := c.where
			if where == "" {
				where = "// BUG"
			}
			_, d, err := r.runOnDevice(t)
			wantTrap(t, err, c.kind, lineOf(t, r.ptx, where), c.lane)
			if !errors.Is(d.Err(), driver.ErrDeviceLost) {
				t.Errorf("the fault is not sticky: %v", d.Err())
			}
			if _, err := d.Alloc(1); !errors.Is(err, driver.ErrDeviceLost) {
				t.Errorf("the device still works after a fault: %v", err)
			}
			r.ptx = c.corrected()
			if _, err := r.run(t); err != nil {
				t.Errorf("without the bug: %v", err)
			}
		})
	}
}
