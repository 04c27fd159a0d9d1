package ptxlog

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/ptxlog/ptxlogtest"
)

// quiet is what ptxas -v prints for a kernel.
const quiet = "ptxas info    : 0 bytes gmem\n" +
	"ptxas info    : Compiling entry function 'k' for 'sm_80'\n" +
	"ptxas info    : Function properties for k\n" +
	"    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n" +
	"ptxas info    : Used 40 registers, 368 bytes cmem[0]\n"

// linked is the log of the driver's linker for a kernel. Its last three lines are of the linker itself.
const linked = "ptxas info    : 0 bytes gmem\n" +
	"ptxas info    : Compiling entry function 'k' for 'sm_75'\n" +
	"ptxas info    : Function properties for k\n" +
	"ptxas         .     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n" +
	"ptxas info    : Used 8 registers, 360 bytes cmem[0]\n" +
	"info    : 0 bytes gmem\n" +
	"info    : Function properties for 'k':\n" +
	"info    : used 8 registers, 8 stack, 0 bytes smem, 360 bytes cmem[0], 0 bytes lmem\n"

const (
	serialized = "Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions defining accumulator registers of a wgmma between start and end of the pipeline stage in the function 'k'"
	ignored    = "Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry."
)

func TestParse(t *testing.T) {
	other := strings.ReplaceAll(strings.Replace(quiet, "40", "41", 1), "k'", "k2'")
	warned := func(registers int, number int, text string) Report {
		return Report{Registers: registers, Warnings: []Warning{{number, text}}}
	}
	tests := []struct {
		name, out string
		want      map[string]Report
	}{
		{"no entries", "ptxas info    : 0 bytes gmem\n", map[string]Report{}},
		{"one entry", quiet, map[string]Report{"k": {Registers: 40}}},
		{"all figures",
			"ptxas info    : Compiling entry function 'k' for 'sm_80'\n" +
				"    160 bytes stack frame, 92 bytes spill stores, 96 bytes spill loads\n" +
				"ptxas info    : Used 24 registers, used 3 barriers, 160 bytes cumulative stack size, 100 bytes smem, 360 bytes cmem[0]\n",
			map[string]Report{"k": {Registers: 24, Stack: 160, SpillStores: 92, SpillLoads: 96, Shared: 100, Barriers: 3}}},
		{"two entries", quiet + other, map[string]Report{"k": {Registers: 40}, "k2": {Registers: 41}}},
		{"unknown lines",
			"nonsense\n" + strings.Replace(quiet, "ptxas info    : Used", "ptxas info    : 7 bananas\nptxas info    : Used", 1) + "ptxas info    : Compile time = 1.5 ms\n",
			map[string]Report{"k": {Registers: 40}}},
		{"carriage returns", strings.ReplaceAll("ptxas warning : careful\n"+quiet, "\n", "\r\n"),
			map[string]Report{"k": warned(40, 0, "careful")}},
		{"an entry with a function", quiet + "ptxas info    : Function properties for f\n    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n",
			map[string]Report{"k": {Registers: 40, Stack: 8, SpillStores: 4, SpillLoads: 4}}},
		{"the driver's linker", linked, map[string]Report{"k": {Registers: 8, Stack: 8, SpillStores: 4, SpillLoads: 4}}},
		{"warning for one entry", "ptxas warning : For entry k2 adjusting\n" + quiet + other,
			map[string]Report{"k": {Registers: 40}, "k2": warned(41, 0, "For entry k2 adjusting")}},
		{"warning for all entries", "ptxas text.ptx, line 3; warning : odd\n" + quiet + other,
			map[string]Report{"k": warned(40, 0, "odd"), "k2": warned(41, 0, "odd")}},
		{"numbered warning for one entry", "ptxas info    : (C7515) " + serialized + "\n" + quiet + other,
			map[string]Report{"k": warned(40, 7515, serialized), "k2": {Registers: 41}}},
		{"numbered warning for all entries", "ptxas info    : (C7508) " + ignored + "\n" + quiet + other,
			map[string]Report{"k": warned(40, 7508, ignored), "k2": warned(41, 7508, ignored)}},
		{"other prefixes", "info    : (C7508) " + ignored + "\n(C7515)" + serialized + "\n" + quiet,
			map[string]Report{"k": {Registers: 40, Warnings: []Warning{{7508, ignored}, {7515, serialized}}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var entries []string
			for name := range tt.want {
				entries = append(entries, name)
			}
			got, err := Parse([]byte(tt.out), entries)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestParseMissesFigures checks that a missing figure is an error, and that warnings are kept.
func TestParseMissesFigures(t *testing.T) {
	warning := "ptxas info    : (C7508) " + ignored + "\n"
	tests := []struct {
		name, out, missing string
	}{
		{"no registers", strings.Replace(quiet, "registers", "things", 1), "registers"},
		{"no spill stores", strings.Replace(quiet, "spill stores", "things", 1), "spill stores"},
		{"no spill loads", strings.Replace(quiet, "spill loads", "things", 1), "spill loads"},
		{"another entry", strings.ReplaceAll(quiet, "k'", "k2'"), "registers"},
		{"nothing", "", "registers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reports, err := Parse([]byte(warning+tt.out), []string{"k"})
			if err == nil || !strings.Contains(err.Error(), "no "+tt.missing) || !strings.Contains(err.Error(), "entry k") {
				t.Errorf("error %v, want one that names entry k and its %s", err, tt.missing)
			}
			if w := reports["k"].Warnings; len(w) != 1 || w[0].Number != 7508 {
				t.Errorf("warnings %v, want C7508", w)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		report Report
		want   string // after "kernel k is slow: "; "": no error
	}{
		{"many registers, shared memory and barriers", Report{Registers: 255, Shared: 49152, Barriers: 16}, ""},
		{"spill stores", Report{Stack: 8, SpillStores: 4}, "4 bytes of spill stores, 0 bytes of spill loads"},
		{"spill loads", Report{Stack: 8, SpillLoads: 4}, "0 bytes of spill stores, 4 bytes of spill loads"},
		{"a stack frame", Report{Stack: 8}, "8 bytes of local memory per thread"},
		{"a warning without a number", Report{Warnings: []Warning{{0, "odd"}}}, "odd"},
		{"an unknown number", Report{Warnings: []Warning{{9999, "odd"}}}, "C9999: odd"},
		{"a known number", Report{Warnings: []Warning{{7515, serialized}}}, "C7515: wgmma is serialized: another instruction writes accumulators in flight"},
		{"two faults", Report{Stack: 8, Warnings: []Warning{{0, "odd"}}}, "8 bytes of local memory per thread; odd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := tt.report.Check("k"); err != nil {
				got = err.Error()
			}
			want := tt.want
			if want != "" {
				want = "kernel k is slow: " + want
			}
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestEntries(t *testing.T) {
	const text = ".version 7.4\n// .entry comment()\n.visible .entry a(.param .u64 p)\n{\n}\n\t.entry\tb$1()\n.visible .func f()\n.weak .entry %c()\n"
	if got, want := Entries([]byte(text)), []string{"a", "b$1", "%c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, text := range ptxlogtest.Texts() {
		if got := Entries([]byte(text.PTX)); !slices.Equal(got, []string{"k"}) {
			t.Errorf("%s: %q, want k", text.Name, got)
		}
	}
}
