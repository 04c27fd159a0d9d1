// Command embed is what a program looks like that has a language model in it: it
// continues a text on the GPU if there is one with room for the model, else on the CPU,
// and then says why.
//
//	embed FILE.gguf "Once upon a time"
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: embed FILE.gguf TEXT")
	}
	m := must(model.Open(os.Args[1]))
	engine, err := onGPU(m)
	if err != nil {
		log.Print("on the CPU: ", err)
		engine = must(ref.New(m))
	}
	for token, err := range generate.Text(context.Background(), engine, os.Args[2], generate.Params{MaxTokens: 64}) {
		fmt.Print(must(token, err).Text)
	}
	fmt.Println()
}

// onGPU takes the first GPU. The process has it to the end.
func onGPU(m *model.Model) (model.Engine, error) {
	gpu, err := cuda.Open(0)
	if err != nil {
		return nil, err
	}
	engine, err := accel.New(context.Background(), m, gpu, accel.Options{})
	if err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	return engine, nil
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
