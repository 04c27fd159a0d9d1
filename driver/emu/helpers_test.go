package emu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// header is the least that carries what the tests use below the Hopper instructions.
const header = ".version 7.4\n.target sm_80\n.address_size 64\n"

// hopper is the header for instructions that began with sm_90.
const hopper = ".version 8.0\n.target sm_90\n.address_size 64\n"

// bench runs one kernel of a PTX text on buffers of 32-bit words.
type bench struct {
	opts   Options
	ptx    string
	entry  string // "" is k
	grid   int    // CTAs; 0 is 1
	block  int    // threads; 0 is 32
	shared uint32
	args   []any // []uint32: a buffer with these words; int: an undefined buffer of so many words; uint32, uint64: themselves
}

// run gives the words of all buffers after the kernel, and its error.
func (b bench) run(t testing.TB) ([][]uint32, error) {
	t.Helper()
	out, _, err := b.runOnDevice(t)
	return out, err
}

func (b bench) runOnDevice(t testing.TB) ([][]uint32, *Device, error) {
	t.Helper()
	d, err := Open(b.opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Load([]byte(b.ptx))
	if err != nil {
		return nil, d, err
	}
	name := b.entry
	if name == "" {
		name = "k"
	}
	f, err := m.Function(name)
	if err != nil {
		t.Fatal(err)
	}
	params, buffers := b.params(t, d, s)
	l := driver.Launch{
		Function: f, Grid: driver.Dim3{X: uint32(max(b.grid, 1)), Y: 1, Z: 1}, Block: driver.Dim3{X: 32, Y: 1, Z: 1},
		Shared: b.shared, Params: params,
	}
	if b.block != 0 {
		l.Block.X = uint32(b.block)
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

// params lays out the arguments, making the buffers among them.
func (b bench) params(t testing.TB, d *Device, s driver.Stream) (params []byte, buffers []driver.Buffer) {
	t.Helper()
	for _, a := range b.args {
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

// buffer32 makes a buffer of words, or an undefined one of so many.
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

// lineOf is the line of a text that contains part, from 1.
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

// wantTrap checks that err is a trap of a kind at a line and lane, and that it counts as a lost device.
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

// perThread is a kernel of one buffer, in which every thread computes %r0 from its
// number %r1 and stores it there.
func perThread(head, decls, body string) string {
	return head + fmt.Sprintf(`
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

// same gives n equal words.
func same(n int, v uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// replaceLine puts another line in the place of the one that contains mark.
func replaceLine(text, mark, with string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.Contains(line, mark) {
			lines[i] = with
		}
	}
	return strings.Join(lines, "\n")
}
