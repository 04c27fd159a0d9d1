package main

import (
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/model"
)

// modelFlag is the --model flag.
type modelFlag struct {
	Model path `short:"m" env:"LOCKSTEP_MODEL" help:"GGUF file of the model, or its first part (default: a small embedded model)." placeholder:"F"`
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
