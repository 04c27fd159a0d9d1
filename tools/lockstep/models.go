package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/model"
)

// modelFlag is the --model flag.
type modelFlag struct {
	Model path `help:"GGUF file of the model (default: a small embedded model)." placeholder:"F"`
}

// name returns the model's name for messages.
func (m modelFlag) name() string {
	if m.Model == "" {
		return "the embedded model"
	}
	return string(m.Model)
}

// open loads the model. The caller closes it.
func (m modelFlag) open() (*model.Model, error) {
	if m.Model == "" {
		return golden.Model()
	}
	return model.Open(string(m.Model))
}

func kindOf(mode os.FileMode) string {
	if mode.IsDir() {
		return "is a directory"
	}
	return "is not a regular file"
}

// checkOutput returns an error if an output path cannot be replaced: its directory is
// missing, it is not a regular file, or it is one of the inputs.
func checkOutput(flag, path string, inputs ...string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		_, err := os.Stat(filepath.Dir(path))
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", flag, path, err)
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %s %s", flag, path, kindOf(info.Mode()))
	}
	for _, in := range inputs {
		if other, err := os.Stat(in); err == nil && os.SameFile(info, other) {
			return fmt.Errorf("%s: %s is the input %s", flag, path, in)
		}
	}
	return nil
}
