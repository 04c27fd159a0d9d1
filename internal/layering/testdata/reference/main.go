// Command reference runs a model on the CPU only, with packages model and ref.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

func main() {
	m, err := model.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer m.Close()
	engine, err := ref.New(m, ref.Options{})
	if err != nil {
		panic(err)
	}
	for tok, err := range generate.Text(context.Background(), engine, "Once upon a time", generate.Params{MaxTokens: 16}) {
		if err != nil {
			panic(err)
		}
		fmt.Print(tok.Text)
	}
}
