// Package golden is what this module carries to be checked by: a small trained
// model that lives in the binary, tiny models of every architecture and block
// format with the logits of an engine that is not ours, and our own logits of all
// of them, to the bit.
package golden

import (
	_ "embed"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
)

//go:embed model/lockstep-tiny.gguf
var tiny []byte

// File parses the embedded model's file. Its data is shared and must not be
// written to.
func File() (*gguf.File, error) { return gguf.Parse(tiny) }

// Model loads the embedded model: about five million parameters in the llama
// architecture, trained on War and Peace.
func Model() (*model.Model, error) {
	f, err := File()
	if err != nil {
		return nil, err
	}
	return model.Load(f)
}
