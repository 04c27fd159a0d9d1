package ptxas

import (
	"reflect"
	"strings"
	"testing"
)

const quiet = "ptxas info    : Compiling entry function 'k' for 'sm_80'\n" +
	"ptxas info    : Function properties for k\n" +
	"    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n" +
	"ptxas info    : Used 40 registers, 368 bytes cmem[0]\n"

const serialized = "(C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions defining accumulator registers in the function 'k'"

func TestParse(t *testing.T) {
	other := strings.ReplaceAll(quiet, "k'", "k2'")
	tests := []struct {
		name, out string
		want      map[string]Report
	}{
		{"no entries", "ptxas info    : 0 bytes gmem\n", map[string]Report{}},
		{"one entry", "ptxas info    : 0 bytes gmem\n" + quiet, map[string]Report{"k": {Registers: 40}}},
		{"all figures",
			"ptxas info    : Compiling entry function 'k' for 'sm_80'\n" +
				"    160 bytes stack frame, 92 bytes spill stores, 96 bytes spill loads\n" +
				"ptxas info    : Used 24 registers, used 3 barriers, 160 bytes cumulative stack size, 100 bytes smem, 360 bytes cmem[0]\n",
			map[string]Report{"k": {Registers: 24, Stack: 160, SpillStores: 92, SpillLoads: 96, Shared: 100, Barriers: 3}}},
		{"two entries", quiet + strings.Replace(other, "40", "41", 1),
			map[string]Report{"k": {Registers: 40}, "k2": {Registers: 41}}},
		{"unknown lines",
			"nonsense\n" + strings.Replace(quiet, "ptxas info    : Used", "ptxas info    : 7 bananas\nptxas info    : Used", 1) + "ptxas info    : Compile time = 1.5 ms\n",
			map[string]Report{"k": {Registers: 40}}},
		{"carriage returns", strings.ReplaceAll("ptxas warning : careful\n"+quiet, "\n", "\r\n"),
			map[string]Report{"k": {Registers: 40, Warnings: []string{"careful"}}}},
		{"an entry with a function", quiet + "ptxas info    : Function properties for f\n    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n",
			map[string]Report{"k": {Registers: 40, Stack: 8, SpillStores: 4, SpillLoads: 4}}},
		{"warning for one entry", "ptxas warning : For entry k2 adjusting\n" + quiet + other,
			map[string]Report{"k": {Registers: 40}, "k2": {Registers: 40, Warnings: []string{"For entry k2 adjusting"}}}},
		{"warning for all entries", "ptxas text.ptx, line 3; warning : odd\n" + quiet + other,
			map[string]Report{"k": {Registers: 40, Warnings: []string{"odd"}}, "k2": {Registers: 40, Warnings: []string{"odd"}}}},
		{"performance warning", "ptxas info    : " + serialized + "\n" + quiet + other,
			map[string]Report{"k": {Registers: 40, Warnings: []string{serialized}}, "k2": {Registers: 40}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse([]byte(tt.out))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestParseMissesFigures checks that a missing figure is an error.
func TestParseMissesFigures(t *testing.T) {
	for _, figure := range []string{"registers", "spill stores", "spill loads"} {
		t.Run(figure, func(t *testing.T) {
			_, err := parse([]byte(strings.Replace(quiet, figure, "things", 1)))
			if err == nil || !strings.Contains(err.Error(), figure) || !strings.Contains(err.Error(), "entry k") {
				t.Errorf("error %v, want one that names entry k and its %s", err, figure)
			}
		})
	}
}

func TestRejectedError(t *testing.T) {
	text := []byte("one\n  two  \nthree")
	tests := []struct {
		name, out, want string
	}{
		{"a line", "ptxas text.ptx, line 2; error   : Bad\nptxas fatal   : " + aborted + "\n",
			"ptxas: text rejected: sm_80\n\tline 2: Bad: two"},
		{"two messages", "ptxas text.ptx, line 3; error   : Bad\nptxas text.ptx, line 1; fatal   : Worse\n",
			"ptxas: text rejected: sm_80\n\tline 3: Bad: three\n\tline 1: Worse: one"},
		{"no line", "ptxas fatal   : No\n", "ptxas: text rejected: sm_80\n\tNo"},
		{"a line past the end", "ptxas text.ptx, line 9; error   : Bad\n", "ptxas: text rejected: sm_80\n\tBad"},
		{"unexpected output", "Segfault", "ptxas: text rejected: sm_80\n\tunexpected output: \"Segfault\""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseRejection([]byte(tt.out), text, "sm_80").Error(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
