// Package golden holds the data that tests compare with: a small trained model, embedded
// in the program; tiny models of every architecture and block format with the logits of
// other engines; and the reference's own logits of all of them, to the bit.
package golden

import (
	_ "embed"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
)

//go:embed model/lockstep-tiny.gguf
var tiny []byte

// Model loads the embedded model: 5.8 million parameters in the llama architecture,
// trained on War and Peace. Its data is shared and must not be written to.
func Model() (*model.Model, error) {
	f, err := gguf.Parse(tiny)
	if err != nil {
		return nil, err
	}
	return model.Load(f)
}
