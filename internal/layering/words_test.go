package layering

import (
	"bytes"
	"io/fs"
	"path"
	"regexp"
	"testing"
)

// words maps words that must not come back to the words of the field.
var words = []struct{ pattern, use string }{
	{`\b[dD]igited\b`, "quantized activations"},
	{`\b[qQ]uads?\b`, "vec4, or thread in group"},
	{`weights that are numbers`, "unquantized weights"},
	{`\bpile\b`, "split-K reduction"},
	{`stagePower`, "block scale exponent"},
	{`\bnarrowed\b|\bNarrow(Args)?\b`, "cast"},
	{`\bunder way\b`, "in flight"},
	{`\b[lL]ooks?[aA]head\b`, "asynchronous scheduling"},
	{`\bredeem|\bforesees?\b|\bpatience\b`, "page reservation, prediction hit, batching window"},
	{`\bkeepers\b|\bgiveBack\b`, "page references, release"},
	{`\bband\b`, "fused-QKV segment"},
	{`\binventory\b`, "memory plan"},
	{`\bworlds\b`, "fill patterns"},
	{`\b(hard|sharp) gates?\b`, "worst-case bound, probabilistic bound"},
	{`\b[rR]ig\b|KernelRig`, "harness, fixture"},
	{`internal/house\b|\bnevers\b|\bseam\b`, "layering, forbidden imports, interface"},
	{`internal/faulty\b|\bbooks\b|\bDeparture\b`, "fault injection, leak ledger, mismatch"},
	{`\bin vain\b|\bdespair\b`, "livelock"},
	{`(?i)neighbour|behaviour|colour|quantis|normalis|serialis|initialis`, "American spelling"},
	{`\b(nobody|whoever|whom)\b`, "a plain statement; a thing is \"it\""},
}

// One idea has one word, and it is the word of the field.
func TestWords(t *testing.T) {
	patterns := make([]*regexp.Regexp, len(words))
	for i, w := range words {
		patterns[i] = regexp.MustCompile(w.pattern)
	}
	err := walk(root, func(name string) error {
		if ext := path.Ext(name); ext != ".go" && ext != ".md" || name == "internal/layering/words_test.go" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		for n, line := range bytes.Split(text, []byte("\n")) {
			for i, p := range patterns {
				if found := p.Find(line); found != nil {
					t.Errorf("%s:%d: %q: write %s", name, n+1, found, words[i].use)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
