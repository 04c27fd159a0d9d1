package model

import (
	"testing"

	"github.com/lockstep-go/lockstep/quant"
)

func TestKVFormat(t *testing.T) {
	for name, want := range map[string]quant.Format{"f16": quant.F16, "bf16": quant.BF16, "f32": quant.F32} {
		var f KVFormat
		if err := f.UnmarshalText([]byte(name)); err != nil || f.String() != name || f.Format(quant.Q8_0) != want || !f.Valid() {
			t.Errorf("%s: parsed as %v, format %v, error %v", name, f, f.Format(quant.Q8_0), err)
		}
	}
	for _, name := range []string{"", "default", "F16", "q8_0", "KVFormat(9)"} {
		f := KVF32
		if err := f.UnmarshalText([]byte(name)); err == nil || f != KVF32 {
			t.Errorf("%q: parsed as %v", name, f)
		}
	}
	if f := KVFormat(0); f.Format(quant.Q8_0) != quant.Q8_0 || !f.Valid() || f.String() != "default" {
		t.Errorf("the zero value is %v, format %v, valid %v", f, f.Format(quant.Q8_0), f.Valid())
	}
	if f := KVFormat(9); f.Valid() || f.String() != "KVFormat(9)" {
		t.Errorf("%v: valid %v", f, f.Valid())
	}
}
