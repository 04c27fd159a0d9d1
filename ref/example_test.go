package ref_test

import (
	"context"
	"fmt"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/ref"
)

func Example() {
	m, err := golden.Model() // or model.Open("file.gguf")
	if err != nil {
		panic(err)
	}
	defer m.Close()
	eng, err := ref.New(m, ref.Options{})
	if err != nil {
		panic(err)
	}
	for tok, err := range generate.Text(context.Background(), eng, "Prince Andrew", generate.Params{MaxTokens: 16}) {
		if err != nil {
			panic(err)
		}
		fmt.Print(tok.Text)
	}
	// Output:
	// 's wife, and the old prince had not yet seen her.
	//
	// "
}
