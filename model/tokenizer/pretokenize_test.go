package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// splits lists texts per pre-tokenizer, with bars between words.
var splits = []struct{ pre, name, reason, text, want string }{
	{"gpt-2", "contractions", "'s|'t|'re|'ve|'m|'ll|'d come before words",
		"he's can't we're I've I'm she'll he'd", "he|'s| can|'t| we|'re| I|'ve| I|'m| she|'ll| he|'d"},
	{"gpt-2", "capital contractions", "the alternatives are case-sensitive", "HE'S I'VE", "HE|'|S| I|'|VE"},
	{"gpt-2", "contraction inside a word", "a contraction does not look at what follows it", "'select 'rest", "'s|elect| '|rest"},
	{"gpt-2", "no contraction", "r and v need e, l needs l", "'r 'v 'l '", "'|r| '|v| '|l| '"},
	{"gpt-2", "word with space", " ?\\p{L}+ takes one space", "a  b   c", "a| | b|  | c"},
	{"gpt-2", "digits", " ?\\p{N}+ takes all of them and one space", "12345 678", "12345| 678"},
	{"gpt-2", "digits and letters", "they are different alternatives", "abc123def", "abc|123|def"},
	{"gpt-2", "punctuation", " ?[^\\s\\p{L}\\p{N}]+ takes one space", "a... (b) !!", "a|...| (|b|)| !!"},
	{"gpt-2", "spaces before a word", "\\s+(?!\\S) leaves the last one for the word", "    Hello", "   | Hello"},
	{"gpt-2", "tab before a word", "only a space goes with the word: the tab stands alone", "\tHello", "\t|Hello"},
	{"gpt-2", "trailing spaces", "\\s+(?!\\S) takes all at the end", "a   ", "a|   "},
	{"gpt-2", "line ends", "white space like any other", "a\n\n\nb\n", "a|\n\n|\n|b|\n"},
	{"gpt-2", "no-break space", "U+00A0 is white space and no space", "a\u00a0b", "a|\u00a0|b"},
	{"gpt-2", "ideographic space", "U+3000 is white space and no space", "\u6211\u3000\u3000\u60f3", "\u6211|\u3000|\u3000|\u60f3"},
	{"gpt-2", "combining mark", "\\p{M} is neither letter nor space", "e\u0301t", "e|\u0301|t"},
	{"gpt-2", "Arabic-Indic digits", "\\p{N}", "\u0661\u0662 \u0663", "\u0661\u0662| \u0663"},
	{"gpt-2", "fractions and superscripts", "\\p{No} and \\p{Nl} are in \\p{N}", "\u00bd\u00b2\u2167", "\u00bd\u00b2\u2167"},
	{"gpt-2", "CJK", "\\p{Lo}", "\u6211\u60f3 \u5728\uff5e", "\u6211\u60f3| \u5728|\uff5e"},
	{"gpt-2", "emoji joined by ZWJ", "symbols, U+200D and U+FE0F are one run", "x \U0001f636\u200d\U0001f32b\ufe0f y", "x| \U0001f636\u200d\U0001f32b\ufe0f| y"},
	{"gpt-2", "not UTF-8", "bytes that are no character count as symbols", "a\xff\xfe b", "a|\xff\xfe| b"},

	{"starcoder", "single digits", "\\p{N} is cut out first, so a space before it stands alone", "a 123 b", "a| |1|2|3| b"},
	{"starcoder", "spaces before a digit", "the piece before a digit ends there: all its spaces are trailing", "a   1", "a|   |1"},
	{"starcoder", "contraction after a digit", "each stretch is cut on its own", "1's", "1|'s"},

	{"default", "punctuation first", "a run of punctuation is cut out before words are", "Hello, world!!", "Hello|,| world|!!"},
	{"default", "contraction", "the apostrophe has gone by then", "it's", "it|'|s"},
	{"default", "symbols", "$+<=>^~| are taken with the punctuation, other symbols are not", "a$+<=>^~|`b\u20ac", "a|$+<=>^~\u0001|`|b|\u20ac"},
	{"default", "three digits", "[0-9][0-9][0-9] from the left", "12345678", "123|456|78"},
	{"default", "digits after a space", "\\p{N}+ parts them from the space", "a 12345", "a| |123|45"},
	{"default", "Arabic-Indic digits", "\\p{N} but not [0-9]", "\u0661\u0662\u0663\u0664", "\u0661\u0662\u0663\u0664"},

	{"llama-bpe", "contractions in any case", "(?i:'s|'t|'re|'ve|'m|'ll|'d)", "HE'S we'Ve a'lL i'M 'Re", "HE|'S| we|'Ve| a|'lL| i|'M| '|Re"},
	{"llama-bpe", "prefix of a word", "[^\\r\\n\\p{L}\\p{N}]? takes any one character", "(a \tb -c \u00a0d", "(a| |\tb| -|c| |\u00a0d"},
	{"llama-bpe", "no prefix", "line ends and digits are none", "1a\nb\rc", "1|a|\n|b|\r|c"},
	{"llama-bpe", "two symbols before a word", "the run of symbols is longer than the prefix", "((a", "((|a"},
	{"llama-bpe", "space and symbol before a word", "the space takes the symbol, which then is no prefix", " (a", " (|a"},
	{"llama-bpe", "groups of three digits", "\\p{N}{1,3} from the left, without the space", "1234567 89", "123|456|7| |89"},
	{"llama-bpe", "punctuation with line ends", "[^\\s\\p{L}\\p{N}]+[\\r\\n]*", "a.\r\n\nb;\n c", "a|.\r\n\n|b|;\n| c"},
	{"llama-bpe", "line ends", "\\s*[\\r\\n]+ ends after the last of them", "a \n \n  b", "a| \n \n| | b"},
	{"llama-bpe", "line end last", "\\s*[\\r\\n]+ leaves the spaces after it", "a\n   ", "a|\n|   "},
	{"llama-bpe", "spaces before a word", "\\s+(?!\\S) leaves one for the word", "a    b", "a|   | b"},
	{"llama-bpe", "spaces before a digit", "digits take no space: \\s+(?!\\S), then \\s+", "a   1", "a|  | |1"},
	{"llama-bpe", "combining mark as a prefix", "a mark before letters goes with them", "e\u0301te", "e|\u0301te"},
	{"llama-bpe", "emoji as a prefix", "any one character that is no letter, digit or line end", "\U0001f999abc", "\U0001f999abc"},
	{"llama-bpe", "emoji joined by ZWJ", "a run of symbols", " \U0001f636\u200d\U0001f32b\ufe0f (x", " \U0001f636\u200d\U0001f32b\ufe0f| (|x"},
	{"llama-bpe", "Arabic-Indic digits", "three at a time too", "\u0661\u0662\u0663\u0664", "\u0661\u0662\u0663|\u0664"},
	{"llama-bpe", "no-break space before a word", "a prefix like any other", "a\u00a0b", "a|\u00a0b"},
	{"llama-bpe", "ideographic spaces before a word", "all but the last, which is the prefix", "\u3000\u3000\u6211", "\u3000|\u3000\u6211"},

	{"qwen2", "digits one by one", "\\p{N}, without the space", "a 3456", "a| |3|4|5|6"},
	{"qwen2", "contractions in any case", "(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'RE you 'told 'D", "'RE| you| '|told| '|D"},
	{"qwen2", "contraction before letters", "it comes before the word alternative", "'told", "'t|old"},
	{"qwen2", "prefix of a word", "[^\\r\\n\\p{L}\\p{N}]? takes any one character", ".a\tb", ".a|\tb"},
	{"qwen2", "punctuation with line ends", "[^\\s\\p{L}\\p{N}]+[\\r\\n]*", "};\n\n\tx", "};\n\n|\tx"},
	{"qwen2", "space, punctuation, line end", "the space goes with the punctuation", "a =\n=", "a| =\n|="},
	{"qwen2", "line ends", "\\s*[\\r\\n]+ ends after the last of them", "\n \n\n \t\tx", "\n \n\n| \t|\tx"},
	{"qwen2", "trailing spaces", "\\s+(?!\\S) takes all at the end", "a \t ", "a| \t "},
	{"qwen2", "spaces before a word", "one goes with the word", "  discards", " | discards"},
	{"qwen2", "spaces before a digit", "none goes with the digit", "x  7", "x| | |7"},
	{"qwen2", "combining marks", "marks are symbols; one before letters is their prefix", "C\u1ee7a a\u0323\u0302\u0301b", "C\u1ee7a| a|\u0323\u0302\u0301|b"},
	{"qwen2", "Arabic-Indic digits", "one by one", "\u0661\u0662", "\u0661|\u0662"},
	{"qwen2", "CJK and full-width forms", "letters, then a symbol as the prefix of letters", "\u6211\u60f3apple\uff5e\u5929", "\u6211\u60f3apple|\uff5e\u5929"},
	{"qwen2", "no-break space", "a prefix before letters, white space before digits", "a\u00a0b \u00a01", "a|\u00a0b| |\u00a0|1"},
	{"qwen2", "ideographic space", "white space: the last before letters is their prefix", "\u3000\u3000\u5929", "\u3000|\u3000\u5929"},
	{"qwen2", "emoji", "a run of symbols with its joiners", "\U0001f680 (\U0001f636\u200d\U0001f32b\ufe0f)\n", "\U0001f680| (\U0001f636\u200d\U0001f32b\ufe0f)\n"},
	{"qwen2", "next line and line separator", "U+0085 and U+2028 are white space but no line ends here", "a\u0085\u2028b", "a|\u0085|\u2028b"},
}

func TestSplits(t *testing.T) {
	for _, c := range splits {
		t.Run(c.pre+"/"+c.name, func(t *testing.T) {
			want := strings.Split(c.want, "|")
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "\u0001", "|") // a bar in the text
			}
			if diff := cmp.Diff(want, pieces(c.pre, c.text)); diff != "" {
				t.Errorf("%s: %q: -want +got\n%s", c.reason, c.text, diff)
			}
		})
	}
}

// preNames returns the names of all pre-tokenizers.
func preNames() (names []string) {
	for _, p := range preTokenizers {
		names = append(names, strings.Fields(p.names)...)
	}
	return names
}

func pieces(pre, text string) (out []string) {
	v := Vocab{Model: "gpt2", Pre: pre}
	split(v.preTokenizer().splitters, text, func(word string) bool { out = append(out, word); return true })
	return out
}

// The published expressions, for Go's regexp: \s is a class of all white space of Unicode,
// and oracle handles \s+(?!\S).
const (
	ws        = `\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`
	gpt2Regex = `^(?:'s|'t|'re|'ve|'m|'ll|'d| ?\pL+| ?\pN+| ?[^` + ws + `\pL\pN]+)`
	gpt4Head  = `^(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\pL\pN]?\pL+|`
	gpt4Tail  = `| ?[^` + ws + `\pL\pN]+[\r\n]*|[` + ws + `]*[\r\n]+)`
)

// oracle splits text by an expression, trying alternatives in order as a backtracking
// engine does.
func oracle(expr *regexp.Regexp, text string) (out []string) {
	spaces := regexp.MustCompile(`^[` + ws + `]+`)
	for text != "" {
		n := len(expr.FindString(text))
		if n == 0 { // \s+(?!\S)|\s+
			n = len(spaces.FindString(text))
			if _, last := utf8.DecodeLastRuneInString(text[:n]); n < len(text) && last < n {
				n -= last
			}
		}
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}

// TestSplittersMatchExpressions compares the splitters with their expressions on random
// texts.
func TestSplittersMatchExpressions(t *testing.T) {
	for pre, expr := range map[string]string{
		"gpt-2":     gpt2Regex,
		"llama-bpe": gpt4Head + `\pN{1,3}` + gpt4Tail,
		"qwen2":     gpt4Head + `\pN` + gpt4Tail,
	} {
		t.Run(pre, func(t *testing.T) {
			re := regexp.MustCompile(expr)
			rng := rand.New(rand.NewPCG(1, 2))
			alphabet := []rune("  \n\r\t''sStTrReEvVmMlLdDab19.,(\u00a0\u3000\u0085\u2028\u0301\u0661\u00bd\u6211\U0001f636\u200d\ufe0f\u1680")
			for range 20000 {
				text := make([]rune, 1+rng.IntN(12))
				for i := range text {
					text[i] = alphabet[rng.IntN(len(alphabet))]
				}
				if diff := cmp.Diff(oracle(re, string(text)), pieces(pre, string(text))); diff != "" {
					t.Fatalf("%q: -want +got\n%s", string(text), diff)
				}
			}
		})
	}
}

// The only assertion looks at whether the next character is white space, also in an expression that reads none.
func TestAssertionAlone(t *testing.T) {
	x := compile(`a(?!\S)`)
	for text, want := range map[string]int{"a": 1, "a b": 1, "a\u00a0": 1, "a!": 0, "ab": 0, "a\u00a1": 0, "a\u2030": 0} {
		if got := x.match(text); got != want {
			t.Errorf("%q: a match of %d bytes, want %d", text, got, want)
		}
	}
}

// TestWordsLikeJavaScript compares the words of each pre-tokenizer with those that the regular
// expressions of JavaScript find, which have look-around (tools/oracle/words.mjs).
func TestWordsLikeJavaScript(t *testing.T) {
	raw, err := os.ReadFile("../../golden/tokenizer/words.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Texts []string           `json:"texts"`
		Words map[string][][]int `json:"words"` // lengths of the words of each text, in bytes
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	known := map[string]string{} // lengths to the name
	for name, lengths := range want.Words {
		key := fmt.Sprint(lengths)
		if other, ok := known[key]; ok {
			t.Errorf("no text tells %s from %s", name, other)
		}
		known[key] = name
	}
	for _, name := range preNames() {
		var got [][]int
		for _, text := range want.Texts {
			lengths := []int{}
			for _, word := range pieces(name, text) {
				lengths = append(lengths, len(word))
			}
			got = append(got, lengths)
		}
		if want, ok := want.Words[name]; ok {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", name, diff)
			}
		} else if known[fmt.Sprint(got)] == "" {
			t.Errorf("%s splits as no expression of the file does", name)
		}
	}
}

// TestSplitsInLinearTime has long texts on which the expressions look far ahead.
func TestSplitsInLinearTime(t *testing.T) {
	const size = 1 << 18
	for _, part := range []string{" ", "\n", " \n", "a", "A", "a ", "1", "1a", "\u0661", "\u00bd", "'", "\u0301", "\x00", "!", "\u6211", "\u2028", "\xff"} {
		text := strings.Repeat(part, size/len(part))
		for _, p := range preTokenizers {
			bounded(t, size, func() {
				length := 0
				split(p.splitters, text, func(word string) bool { length += len(word); return true })
				if length != len(text) {
					t.Errorf("%s: the words of %q have %d bytes of %d", p.names, part, length, len(text))
				}
			})
		}
	}
}

// TestNamesAreUnique checks that each name is in one row.
func TestNamesAreUnique(t *testing.T) {
	names := preNames()
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("%d names, %d of them different", len(names), len(unique))
	}
}

// TestWordsCoverText checks that the words of a text are the whole text.
func TestWordsCoverText(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, pre := range preNames() {
		for range 2000 {
			text := make([]byte, rng.IntN(20))
			for i := range text {
				text[i] = "a1 \n'.\xe6\x88\x91\xff"[rng.IntN(10)]
			}
			if got := strings.Join(pieces(pre, string(text)), ""); got != string(text) {
				t.Fatalf("%s: the pieces of %q make %q", pre, text, got)
			}
		}
	}
}
