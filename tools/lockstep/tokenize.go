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
	Special bool    `help:"Encode special tokens in the text as such."`
	JSONL   bool    `name:"jsonl" help:"Read one JSON string per line of standard input, at most ${maxline} per line; print one JSON array of ids per line."`
	Text    *string `arg:"" optional:"" help:"Text to encode (default or -: standard input)."`
}

func (c *tokenizeCmd) Help() string {
	return "Adds no BOS token. The file needs only a vocabulary."
}

func (c *tokenizeCmd) Run(e *env) error {
	if c.JSONL && c.Text != nil {
		return usagef("--jsonl: the text comes from standard input, not from an argument")
	}
	tok, closeFile, err := c.tokenizer()
	if err != nil {
		return err
	}
	defer closeFile()
	if c.JSONL {
		return c.lines(e, tok)
	}
	text, err := textOf(e, c.Text)
	if err != nil {
		return err
	}
	return e.stdout("%s\n", idsJSON(tok.Encode(text, c.Special)))
}

// tokenizer loads the vocabulary of the file. The caller calls closeFile at the end.
func (c *tokenizeCmd) tokenizer() (tok *tokenizer.Tokenizer, closeFile func(), err error) {
	open := func() (*gguf.File, error) {
		m, err := golden.Model()
		if err != nil {
			return nil, err
		}
		return m.File, nil
	}
	if c.Model.file != "" {
		open = func() (*gguf.File, error) { return gguf.Open(string(c.Model.file)) }
	}
	f, err := open()
	if err != nil {
		return nil, nil, err
	}
	tok, err = model.LoadTokenizer(f)
	if err == nil && tok == nil {
		err = model.ErrNoTokenizer
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", c.name(), err)
	}
	return tok, func() { f.Close() }, nil
}

// lines prints the answer to each line before it reads the next, so that a program can
// wait for it.
func (c *tokenizeCmd) lines(e *env, tok *tokenizer.Tokenizer) error {
	in := bufio.NewReader(e.in)
	for n := 1; ; n++ {
		line, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("standard input: line %d: %w", n, err)
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

// maxLine is the length of the longest line of standard input, in bytes.
const maxLine = 16 << 20

// readLine reads a line of at most maxLine bytes with its end. The last line may have none;
// it comes with io.EOF.
func readLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, fmt.Errorf("longer than %s", size(maxLine))
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
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

// idsJSON returns a JSON array; never null.
func idsJSON(ids []int) []byte {
	if ids == nil {
		ids = []int{}
	}
	text, err := json.Marshal(ids)
	if err != nil {
		panic(err) // cannot happen: integers have a JSON form
	}
	return text
}
