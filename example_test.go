package lockstep_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

func Example() {
	ctx := context.Background()
	m, err := lockstep.Open(ctx, "golden/model/lockstep-tiny.gguf", lockstep.Options{Device: lockstep.CPU})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for token, err := range m.Generate(ctx, "Well, Prince,", generate.Params{MaxTokens: 16}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: I have been told that I was in the army. I was in the army
}

// By default Open selects the GPU if it can run the model. Device returns why it cannot.
func ExampleModel_Device() {
	m, err := lockstep.Open(context.Background(), "model.gguf", lockstep.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	device, reason := m.Device()
	fmt.Println(device)
	if reason != nil {
		fmt.Println("no GPU:", reason)
	}
}

func ExampleModel_Chat() {
	ctx := context.Background()
	m, err := lockstep.Open(ctx, "model.gguf", lockstep.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	messages := []tokenizer.Message{
		{Role: "system", Content: "Answer in one sentence."},
		{Role: "user", Content: "Why is the sky blue?"},
	}
	for token, err := range m.Chat(ctx, messages, generate.Params{MaxTokens: 100, Sampling: sampling.Params{Temperature: 0.7}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
}
