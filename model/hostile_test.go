package model

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
	"github.com/lockstep-go/lockstep/quant"
)

// numbered returns n different strings of a format.
func numbered(n int, format string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return out
}

// alphabet returns n texts of two or three characters of the byte-level alphabet, none of
// them a token of a tiny vocabulary, and merges that produce them.
func alphabet(n int) (texts, merges []string) {
	for i := range n {
		a, b := tokenizer.ByteToken(byte(i)|0x80), tokenizer.ByteToken(byte(i>>7)|0x80)
		if i < 1<<14 {
			texts, merges = append(texts, a+b), append(merges, a+" "+b)
			continue
		}
		c := tokenizer.ByteToken(byte(i>>14-1) | 0x80)
		texts, merges = append(texts, a+b+c), append(merges, a+b+" "+c)
	}
	return texts, merges
}

// vocabulary returns a byte-level vocabulary: the bytes, and more tokens of one type.
func vocabulary(w map[string]any, kind uint8, more []string) []string {
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	v, _ := spec.File().Value(tokensKey)
	tokens, _ := v.Strings()
	bytes := len(tokens)
	tokens = append(tokens, more...)
	types := slices.Repeat([]uint8{kind}, len(tokens))
	for i := range bytes {
		types[i] = 1
	}
	w["tokenizer.ggml.model"], w["tokenizer.ggml.pre"] = "gpt2", "llama-bpe"
	w["tokenizer.ggml.add_bos_token"], w["tokenizer.ggml.merges"] = false, []string{}
	w[tokensKey], w[typesKey] = tokens, types
	return tokens
}

// TestLargeHostileFiles opens large files that a small writer made. Memory and time must
// stay in proportion to the file.
func TestLargeHostileFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("writes files of tens of megabytes")
	}
	const merges = "tokenizer.ggml.merges"
	tests := []struct {
		name, reason string
		set          func(w map[string]any)
		rows         int // of the embedding
		loads        bool
	}{
		{"heads", "an array of bytes instead of one value per layer", func(w map[string]any) {
			w["llama.attention.head_count"] = make([]uint8, 4<<20)
		}, 1, false},
		{"array for a scalar", "an array of strings that must not be decoded", func(w map[string]any) {
			w["llama.logit_scale"] = make([]string, 2<<20)
		}, 1, false},
		{"types", "more of them than tokens", func(w map[string]any) {
			tokens := vocabulary(w, 1, nil)
			w[typesKey] = make([]uint8, 4<<20)
			w["llama.vocab_size"] = uint32(len(tokens))
		}, tiny.Vocab, false},
		{"tokens for another embedding", "more of them than rows", func(w map[string]any) {
			vocabulary(w, 1, numbered(2<<20, "%d"))
		}, 32, false},
		{"too many tokens", "as many as rows", func(w map[string]any) {
			vocabulary(w, 1, numbered(2<<20, "%d"))
		}, 2<<20 + tiny.Vocab, false},
		{"the most tokens", "short and well formed", func(w map[string]any) {
			vocabulary(w, 1, numbered(maxTokens-tiny.Vocab, "%05x"))
		}, maxTokens, true},
		{"user-defined tokens", "each is searched in every text", func(w map[string]any) {
			vocabulary(w, 4, numbered(maxTokens-tiny.Vocab, "%012d"))
		}, maxTokens, true},
		{"user-defined tokens with a common prefix", "comparing them takes the whole text", func(w map[string]any) {
			vocabulary(w, 4, numbered(100000, "%0200d"))
		}, 100000 + tiny.Vocab, true},
		{"control tokens of one text", "each ends a text", func(w map[string]any) {
			vocabulary(w, 3, slices.Repeat([]string{"</s>"}, maxTokens-tiny.Vocab))
		}, maxTokens, true},
		{"empty merges", "no pairs", func(w map[string]any) {
			vocabulary(w, 1, nil)
			w[merges] = make([]string, 2<<20)
		}, tiny.Vocab, false},
		{"as many empty merges as are possible", "no pairs", func(w map[string]any) {
			vocabulary(w, 1, nil)
			w[merges] = make([]string, maxMerges)
		}, tiny.Vocab, false},
		{"the most tokens and merges", "each merge produces another token", func(w map[string]any) {
			more, pairs := alphabet(maxTokens - tiny.Vocab)
			vocabulary(w, 1, more)
			w[merges] = pairs
		}, maxTokens, true},
		{"the most merges", "the same again and again", func(w map[string]any) {
			vocabulary(w, 1, nil)
			w[merges] = slices.Repeat([]string{"t h"}, maxMerges)
		}, tiny.Vocab, true},
		{"long names", "quoted in errors", func(w map[string]any) {
			vocabulary(w, 1, nil)
			w["tokenizer.ggml.pre"] = string(slices.Repeat([]byte{1}, 16<<20))
		}, tiny.Vocab, true}, // loads without a tokenizer
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all := map[string]any{}
			tt.set(all)
			path := filepath.Join(t.TempDir(), "hostile.gguf")
			hostile(t, path, all, tt.rows)
			all = nil
			runtime.GC()
			size, memory, took, err := opened(t, path)
			t.Logf("%d MB took %d MB in %v", size>>20, memory>>20, took.Round(time.Millisecond))
			if (err == nil) != tt.loads {
				t.Errorf("%s: error %v, want one: %v", tt.reason, err, !tt.loads)
			}
			// The time is generous: only work that grows faster than the file takes longer.
			if memory > 64<<20+4*size || took > 10*time.Second {
				t.Errorf("%s: a file of %d bytes took %d bytes of memory and %v", tt.reason, size, memory, took)
			}
		})
	}
}

// hostile writes a llama of width 1 with these keys.
func hostile(t *testing.T, path string, set map[string]any, rows int) {
	t.Helper()
	w := gguf.NewWriter()
	put := func(key string, value any) {
		if err := w.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("general.architecture", "llama")
	for _, key := range []string{"block_count", "embedding_length", "context_length", "attention.head_count", "feed_forward_length"} {
		put("llama."+key, uint32(1))
	}
	put("llama.attention.key_length", uint32(2))
	put("llama"+epsKey, float32(1e-5))
	for key, value := range set {
		put(key, value)
	}
	add := func(name string, dims ...int) {
		size := 2
		for _, n := range dims {
			size *= n
		}
		err := w.Add(gguf.TensorInfo{Name: name, Format: quant.F16, Dims: dims, Write: func(w io.Writer) error {
			_, err := w.Write(make([]byte, size))
			return err
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	add(embedding, 1, rows)
	for _, name := range []string{"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"} {
		add(name+".weight", 1)
	}
	for _, name := range []string{"attn_v", "ffn_gate", "ffn_up", "ffn_down", "attn_output"} {
		add("blk.0."+name+".weight", 1, 1)
	}
	add("blk.0.attn_q.weight", 1, 2)
	add("blk.0.attn_k.weight", 1, 2)
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
}

// opened opens a file as a model and closes it.
func opened(t *testing.T, path string) (size, memory uint64, took time.Duration, err error) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	m, err := Open(path)
	took = time.Since(begin)
	runtime.ReadMemStats(&after)
	if err == nil {
		m.Close()
	}
	return uint64(info.Size()), after.TotalAlloc - before.TotalAlloc, took, err
}
