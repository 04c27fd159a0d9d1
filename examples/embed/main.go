// Command embed continues a text with a language model, on the GPU if it can run the model,
// else on the CPU.
//
//	embed FILE.gguf "Once upon a time"
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/generate"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: embed FILE.gguf TEXT")
	}
	ctx := context.Background()
	model, err := lockstep.Open(ctx, os.Args[1], lockstep.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	if _, reason := model.Device(); reason != nil {
		log.Print("on the CPU: ", reason)
	}
	for token, err := range model.Generate(ctx, os.Args[2], generate.Params{MaxTokens: 64}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	fmt.Println()
}
