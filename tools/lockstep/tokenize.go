package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

type tokenizeCmd struct {
	modelFlag
	Special bool    `help:"Parse special tokens in the text."`
	JSONL   bool    `name:"jsonl" help:"Standard input is a JSON string a line; the output is a JSON array of ids for each."`
	Text    *string `arg:"" optional:"" help:"Text to encode; without it or with -, all of standard input."`
}

func (c *tokenizeCmd) Help() string {
	return "No BOS token is added. The file needs a vocabulary, and need not be a whole model."
}

func (c *tokenizeCmd) Run(e *env) error {
	if c.JSONL && c.Text != nil {
		return usagef("--jsonl: the text comes from standard input, not from an argument")
	}
	tok, done, err := c.tokenizer()
	if err != nil {
		return err
	}
	defer done()
	if c.JSONL {
		return c.lines(e, tok)
	}
	text, err := textOf(e, c.Text)
	if err != nil {
		return err
	}
	return e.stdout("%s\n", idsJSON(tok.Encode(text, c.Special)))
}

// tokenizer loads the vocabulary alone.
func (c *tokenizeCmd) tokenizer() (*tokenizer.Tokenizer, func(), error) {
	open := golden.File
	if c.Model != "" {
		open = func() (*gguf.File, error) { return gguf.Open(string(c.Model)) }
	}
	f, err := open()
	if err != nil {
		return nil, nil, err
	}
	tok, err := model.LoadTokenizer(f)
	if err == nil && tok == nil {
		err = model.ErrNoTokenizer
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", c.name(), err)
	}
	return tok, func() { f.Close() }, nil
}

// lines answers every line at once, so that a program at the other end can wait
// for the answer.
func (c *tokenizeCmd) lines(e *env, tok *tokenizer.Tokenizer) error {
	in := bufio.NewReader(e.in)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("standard input: %w", err)
		}
		last := err != nil
		if line = bytes.TrimSpace(line); len(line) > 0 || !last {
			text, err := jsonString(line)
			if err != nil {
				return fmt.Errorf("standard input: line %d: %w", n, err)
			}
			if err := e.stdout("%s\n", idsJSON(tok.Encode(text, c.Special))); err != nil {
				return err
			}
		}
		if last || e.ctx.Err() != nil {
			return e.ctx.Err()
		}
	}
}

func jsonString(line []byte) (string, error) {
	if len(line) == 0 || line[0] != '"' {
		return "", errors.New("want a JSON string")
	}
	var text string
	if err := json.Unmarshal(line, &text); err != nil {
		return "", fmt.Errorf("want a JSON string: %w", err)
	}
	return text, nil
}

// idsJSON is a JSON array, also of no ids.
func idsJSON(ids []int) []byte {
	if ids == nil {
		ids = []int{}
	}
	text, err := json.Marshal(ids)
	if err != nil {
		panic(err) // whole numbers always have a JSON form
	}
	return text
}
