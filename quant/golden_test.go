package quant_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/quant"
)

var update = flag.Bool("update", false, "rewrite testdata")

// picks lists the blocks of golden/quant that testdata/blocks.txt holds.
var picks = []struct {
	sample       string
	first, count int // blocks
	reason       string
}{
	{"f16", 0, 32, "weights of both signs and many exponents"},
	{"bf16", 0, 32, "weights of both signs and many exponents"},
	{"q4_0", 2, 1, "positive scale, many quants"},
	{"q4_0", 513, 1, "negative scale"},
	{"q4_1", 1, 1, "many quants"},
	{"q4_1", 512, 1, "many quants"},
	{"q5_0", 2, 1, "positive scale, many high bits"},
	{"q5_0", 1, 1, "negative scale"},
	{"q5_1", 1, 1, "many high bits"},
	{"q5_1", 512, 1, "many high bits"},
	{"q8_0", 2, 1, "quants of both signs"},
	{"q8_0", 769, 1, "quants of both signs"},
	{"q2_k", 34, 1, "all 16 pairs of scale and minimum differ"},
	{"q2_k", 124, 1, "the same with others"},
	{"q3_k", 3, 1, "all 16 scales differ, 11 are negative"},
	{"q3_k", 4, 1, "all 16 scales differ, 9 are negative"},
	{"q4_k", 1, 1, "all 8 pairs differ, the minimums of sub-blocks 4–7 with top bits of two kinds"},
	{"q4_k", 66, 1, "all 8 pairs differ, a minimum below 32"},
	{"q5_k", 2, 1, "all 8 pairs differ, top bits of two kinds"},
	{"q5_k", 64, 1, "all 8 pairs differ, scales above minimums and below"},
	{"q6_k", 2, 1, "all 16 scales differ, 9 are negative, one is −128"},
	{"q6_k", 125, 1, "all 16 scales differ, 10 are negative"},
	{"iq4_nl", 2, 1, "positive scale, many levels"},
	{"iq4_nl", 512, 1, "negative scale"},
	{"iq4_xs", 16, 1, "all 8 scales differ, 4 are negative"},
	{"iq4_xs", 127, 1, "the same with others, one of −32"},
}

// testdata/blocks.txt has a line per pick: the format, the blocks in hexadecimal, and the
// weights as little-endian float32 in hexadecimal.
func TestDecodeMatchesGolden(t *testing.T) {
	path := filepath.Join("testdata", "blocks.txt")
	if *update {
		writeBlocks(t, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != len(picks) {
		t.Fatalf("%d lines for %d picks", len(lines), len(picks))
	}
	for i, pick := range picks {
		t.Run(fmt.Sprintf("%s/%d", pick.sample, pick.first), func(t *testing.T) {
			var name, blocks, values string
			if _, err := fmt.Sscan(lines[i], &name, &blocks, &values); err != nil {
				t.Fatal(err)
			}
			f, ok := formatNamed(pick.sample)
			if !ok || f.String() != name {
				t.Fatalf("%s in the place of %s", name, pick.sample)
			}
			got := make([]float32, pick.count*f.BlockLen())
			quant.Decode(f, got, unhex(t, blocks))
			if !bytes.Equal(floatBytes(got), unhex(t, values)) {
				t.Errorf("%s: %v, want the bits %s", pick.reason, got, values)
			}
		})
	}
}

func formatNamed(name string) (quant.Format, bool) {
	for _, f := range quant.Formats() {
		if strings.EqualFold(name, f.String()) {
			return f, true
		}
	}
	return 0, false
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeBlocks(t *testing.T, path string) {
	t.Helper()
	all := oracles(t)
	var out bytes.Buffer
	for _, pick := range picks {
		s, ok := all[pick.sample]
		if !ok {
			t.Fatalf("no sample %s", pick.sample)
		}
		size, n := s.format.BlockBytes(), s.format.BlockLen()
		blocks := s.blocks[pick.first*size:][:pick.count*size]
		values := s.values[pick.first*n:][:pick.count*n]
		fmt.Fprintf(&out, "%v %x %x\n", s.format, blocks, floatBytes(values))
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// testdata/encoded.txt has the SHA-256 of the output of each encoder. It differs on a
// platform that rounds differently.
func TestEncodeMatchesGolden(t *testing.T) {
	x := bells(1 << 14)
	var got bytes.Buffer
	for _, f := range quant.Formats() {
		if !f.CanEncode() {
			continue
		}
		size, err := f.RowBytes(len(x))
		if err != nil {
			t.Fatal(err)
		}
		blocks := make([]byte, size)
		if err := f.Encode(blocks, x); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%v %x\n", f, sha256.Sum256(blocks))
	}
	path := filepath.Join("testdata", "encoded.txt")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("encoded otherwise:\n%swant:\n%s", got.String(), want)
	}
}

// bells returns n nearly Gaussian weights, one in a hundred 30 times larger. It uses only
// operations that are equal on every platform.
func bells(n int) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n)
	for i := range x {
		var sum int64
		for range 12 {
			sum += int64(r.Uint32()) - 1<<31
		}
		x[i] = float32(sum) / (1 << 38)
		if r.IntN(100) == 0 {
			x[i] *= 30
		}
	}
	return x
}
