package model

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// Open maps a GGUF file, or all files of a split model if path is that of the first, and loads
// the model. Close unmaps it. Errors are those of gguf.Open and Load.
func Open(path string) (*Model, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	m, fault, err := guardedLoad(f)
	switch {
	case fault != nil: // its text names the file
		err = fault
	case err != nil:
		err = fmt.Errorf("model: %s: %w", path, err)
	default:
		return m, nil
	}
	f.Close()
	return nil, err
}

// Load checks that a GGUF file is a complete model of a supported architecture and
// describes it. Weight matrices stay in the file; norms, biases and RoPE factors are
// decoded. The model owns f from then on.
//
// If the vocabulary uses an algorithm that package tokenizer does not support, the model
// computes with token ids: Tokenizer is nil and NeedTokenizer returns the reason.
//
// Keys and tensors are those of the GGUF specification (github.com/ggml-org/ggml,
// docs/gguf.md). Each error names a key or a tensor and wraps ErrUnsupported,
// ErrInvalid, or a sentinel of package gguf, quant or tokenizer.
func Load(f *gguf.File) (*Model, error) {
	m, fault, err := guardedLoad(f)
	if fault != nil {
		return nil, fault
	}
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return m, nil
}

// guardedLoad is load. fault is the error if the mapped file became shorter during load.
func guardedLoad(f *gguf.File) (m *Model, fault, err error) {
	fault = gguf.Guard(func() { m, err = load(f) })
	if fault == nil && err == nil { // the rest of the last page of a shortened file reads as zeros
		fault = f.Check()
	}
	return m, fault, err
}

func load(f *gguf.File) (*Model, error) {
	k := &keys{f: f}
	refuseUnread(k, nil, fileRules)
	name, ok := read(k, archKey, gguf.Value.Str)
	if k.err != nil {
		return nil, k.err
	}
	if !ok {
		return nil, fmt.Errorf("key %q: %w", archKey, errMissingKey)
	}
	a, err := architectureOf(name)
	if err != nil {
		return nil, err
	}
	c, err := readConfig(f, name, a)
	if err != nil {
		return nil, err
	}
	if c.Vocab, err = vocabSize(f, c); err != nil {
		return nil, err
	}
	m := &Model{File: f}
	m.Tokenizer, err = loadTokenizer(f, a, c.Vocab)
	if errors.Is(err, tokenizer.ErrUnsupported) {
		m.noTokenizer, err = fmt.Errorf("%w: %w", ErrNoTokenizer, err), nil
	}
	if err != nil {
		return nil, err
	}
	if m.Weights, err = loadWeights(f, a, &c); err != nil {
		return nil, err
	}
	m.Config = c
	if m.Tokenizer != nil && unnamedPreTokenizer(f, a) {
		m.Warnings = append(m.Warnings, "the file does not name its pre-tokenizer (tokenizer.ggml.pre), so text may be cut into other tokens than in training")
	}
	if err := checkAngles(m); err != nil {
		return nil, err
	}
	return m, nil
}

// Close unmaps the file. While an engine reads the weights it returns ErrInUse and
// changes nothing. Closing again does nothing.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users > 0 {
		return fmt.Errorf("model: close: %w: %d sequences or engines read its weights", ErrInUse, m.users)
	}
	return m.File.Close()
}

// Acquire keeps Close from unmapping the weights until release is called. An engine
// calls it while it may read Weights. Calling release again does nothing. Acquire returns
// gguf.ErrClosed after Close, and gguf.ErrTruncated if the file became shorter.
func (m *Model) Acquire() (release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.File.Check(); err != nil {
		return nil, err
	}
	m.users++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.users--
	}), nil
}

// NeedTokenizer returns the model's tokenizer, or an error that wraps ErrNoTokenizer and
// gives the reason.
func (m *Model) NeedTokenizer() (*tokenizer.Tokenizer, error) {
	switch {
	case m.Tokenizer != nil:
		return m.Tokenizer, nil
	case m.noTokenizer != nil:
		return nil, m.noTokenizer
	}
	return nil, ErrNoTokenizer
}

// Prompt encodes a text as tokenizer.Tokenizer.Prompt does. The error wraps
// ErrNoTokenizer, or ErrContextLimit if the prompt has more than limit tokens. limit is the
// number of positions that the caller has, at most those of the context.
func (m *Model) Prompt(text string, special bool, limit int) ([]int, error) {
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	ids, ok := t.Prompt(text, special, limit)
	return within(ids, ok, limit)
}

// Chat renders a conversation and encodes it as Prompt does a text.
func (m *Model) Chat(c tokenizer.Conversation, limit int) ([]int, error) {
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	text, err := t.Render(c)
	if err != nil {
		return nil, err
	}
	ids, ok := t.PromptText(text, limit)
	return within(ids, ok, limit)
}

// within returns an error if a prompt has more than limit tokens.
func within(ids []int, ok bool, limit int) ([]int, error) {
	if !ok {
		return nil, &problem{fmt.Sprintf("context limit: the prompt has more than %d tokens and there are %d positions", limit, limit), ErrContextLimit}
	}
	return ids, nil
}

const embeddingName = "token_embd.weight"

// vocabSize returns the number of rows of the embedding, which must equal the file's
// vocab_size if it has one. loadTokenizer compares it with the list of tokens.
func vocabSize(f *gguf.File, c Config) (int, error) {
	t, ok := f.Tensor(embeddingName)
	if !ok {
		return 0, fmt.Errorf("tensor %q: %w", embeddingName, errMissingTensor)
	}
	rows := 1
	if len(t.Dims) > 1 {
		rows = t.Dims[1]
	}
	switch {
	case rows > maxVocab:
		return 0, fmt.Errorf("tensor %q: %w: %d rows, at most %d tokens are possible", embeddingName, errTensorShape, rows, maxVocab)
	case c.Vocab != 0 && c.Vocab != rows:
		return 0, fmt.Errorf("tensor %q: %w: %d rows and %s.vocab_size is %d", embeddingName, errTensorShape, rows, c.Arch, c.Vocab)
	}
	return rows, nil
}
