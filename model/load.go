package model

import (
	"fmt"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// Open maps a GGUF file and loads the model in it. Close unmaps it.
func Open(path string) (*Model, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := Load(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Load checks that a GGUF file is a complete model of a known architecture and
// describes it. Weight matrices stay where they are in the file; norms, biases
// and rotation factors are decoded. The model refers to f, which must stay open
// as long as the model is used; Close closes it.
//
// The keys and tensors are those of the GGUF specification
// (github.com/ggml-org/ggml, docs/gguf.md). Every error names the key or the
// tensor and wraps one of this package's sentinels, or one of gguf's or
// tokenizer's.
func Load(f *gguf.File) (*Model, error) {
	var m *Model
	var err error
	if fault := gguf.Guard(func() { m, err = load(f) }); fault != nil {
		return nil, fault
	}
	return m, err
}

func load(f *gguf.File) (*Model, error) {
	arch, ok, err := f.Str("general.architecture")
	if err != nil {
		return nil, fmt.Errorf("model: %w: %w", ErrBadKey, err)
	}
	if !ok {
		return nil, fmt.Errorf("model: key \"general.architecture\": %w", ErrMissingKey)
	}
	fam, err := familyOf(arch)
	if err != nil {
		return nil, err
	}
	c, err := readConfig(f, arch, fam)
	if err != nil {
		return nil, err
	}
	tok, err := LoadTokenizer(f)
	if err != nil {
		return nil, err
	}
	if c.Vocab, err = vocabSize(f, c, tok); err != nil {
		return nil, err
	}
	w, err := loadWeights(f, fam, &c)
	if err != nil {
		return nil, err
	}
	return &Model{Config: c, Weights: w, Tokenizer: tok, File: f}, nil
}

// Close unmaps the file. The weights and every engine on them are unusable
// afterwards.
func (m *Model) Close() error { return m.File.Close() }

// vocabSize settles the number of tokens, which the file may state up to three
// times: as a key, as a list of tokens and as the embedding's rows.
func vocabSize(f *gguf.File, c Config, tok *tokenizer.Tokenizer) (int, error) {
	const embedding = "token_embd.weight"
	t, ok := f.Tensor(embedding)
	if !ok {
		return 0, fmt.Errorf("model: tensor %q: %w", embedding, ErrMissingTensor)
	}
	rows := 1
	if len(t.Dims) > 1 {
		rows = t.Dims[1]
	}
	switch {
	case rows > maxVocab:
		return 0, fmt.Errorf("model: tensor %q: %w: %d rows, at most %d tokens are possible", embedding, ErrTensorShape, rows, maxVocab)
	case tok != nil && tok.Len() != rows:
		return 0, fmt.Errorf("model: tensor %q: %w: %d rows and the vocabulary has %d tokens", embedding, ErrTensorShape, rows, tok.Len())
	case c.Vocab != 0 && c.Vocab != rows:
		return 0, fmt.Errorf("model: tensor %q: %w: %d rows and %s.vocab_size is %d", embedding, ErrTensorShape, rows, c.Arch, c.Vocab)
	}
	return rows, nil
}
