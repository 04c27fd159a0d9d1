// Command embed is what a program looks like that has a language model in it: it
// continues a text on the GPU if there is one with room for the model, else on the CPU.
//
//	embed FILE.gguf "Once upon a time"
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: embed FILE.gguf TEXT")
	}
	m := must(model.Open(os.Args[1]))
	var engine model.Engine = must(ref.New(m))
	if gpu, err := cuda.Open(0); err == nil {
		if fast, err := accel.New(m, gpu, accel.Options{}); err == nil {
			engine = fast
		}
	}
	for token, err := range model.Generate(context.Background(), engine, os.Args[2], model.Params{MaxTokens: 64}) {
		fmt.Print(must(token, err).Text)
	}
	fmt.Println()
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
