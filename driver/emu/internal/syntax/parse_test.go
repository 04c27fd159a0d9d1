package syntax

import (
	"errors"
	"strings"
	"testing"
)

const header = ".version 8.0\n.target sm_90a\n.address_size 64\n"

func parseEntry(t *testing.T, body string) *Entry {
	t.Helper()
	m, err := Parse([]byte(header + ".visible .entry k(.param .u8 a, .param .u64 .ptr .global .align 16 p)\n.maxntid 32, 2\n{\n" + body + "\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return m.Entries[0]
}

func TestEntry(t *testing.T) {
	e := parseEntry(t, "@!%p ld.global.L2::cache_hint.v2.u32 {%r0, %r1}, [%d1+-8], 0x10U; /* two\nlines */ A: bra A;")
	if e.Name != "k" || e.Line != 4 || e.MaxNTID != [3]uint32{32, 2, 1} || e.ParamBytes() != 16 {
		t.Errorf("entry %+v", e)
	}
	if p := e.Params[1]; p.Offset != 8 || !p.Pointer || p.Align != 16 || p.Type != (Type{Unsigned, 64}) {
		t.Errorf("parameter %+v", p)
	}
	in := e.Body[0]
	if in.Line != 7 || in.Guard != "%p" || !in.Negated || in.Opcode != "ld.global.L2::cache_hint.v2.u32" || len(in.Operands) != 3 {
		t.Fatalf("instruction %+v", in)
	}
	if v := in.Operands[0]; v.Kind != Vector || len(v.Elems) != 2 || v.Elems[1].Name != "%r1" {
		t.Errorf("vector %+v", v)
	}
	if a := in.Operands[1]; a.Kind != Address || a.Name != "%d1" || a.Offset != -8 {
		t.Errorf("address %+v", a)
	}
	if n := in.Operands[2]; n.Kind != ImmInt || n.Value != 16 || n.Minus {
		t.Errorf("immediate %+v", n)
	}
	if e.Body[1].Line != 8 || e.Labels["A"] != 1 {
		t.Errorf("the label is at %d, the branch on line %d", e.Labels["A"], e.Body[1].Line)
	}
}

func TestRegister(t *testing.T) {
	e := parseEntry(t, ".reg .b32 %r<3>, %x; .reg .f64 %r1a; .reg .pred %p1<12>;")
	for name, want := range map[string]string{
		"%r0": ".b32", "%r2": ".b32", "%x": ".b32", "%r1a": ".f64", "%p10": ".pred", "%p111": ".pred",
		"%r3": "", "%r01": "", "%r": "", "%p112": "", "%y": "",
	} {
		typ, ok := e.Register(name)
		if ok != (want != "") || ok && typ.String() != want {
			t.Errorf("%s: %v, %v; want %q", name, typ, ok, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		header + "/* no end": "line 4: unterminated comment",
		header + "\n?":       "line 5: unexpected byte 0x3f",
		header + ".shared .b8 x;\n.shared .b8 y[]": "line 5: y: .shared needs a size",
		header + ".entry k() { add %r, ":           "line 4: \"end of text\"",
	} {
		_, err := Parse([]byte(text))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
