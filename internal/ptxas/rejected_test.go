package ptxas

import "testing"

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
