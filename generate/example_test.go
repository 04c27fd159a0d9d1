package generate_test

import (
	"context"
	"fmt"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/ref"
)

// A Generator with a prefix cache computes the common beginning of prompts once.
func ExampleGenerator() {
	m, err := golden.Model()
	if err != nil {
		panic(err)
	}
	engine, err := ref.New(m, ref.Options{})
	if err != nil {
		panic(err)
	}
	g, err := generate.New(engine, generate.Options{PrefixTokens: 1000})
	if err != nil {
		panic(err)
	}
	defer g.Close()
	for _, prompt := range []string{"The old prince went to the", "The old prince went to his"} {
		var stats generate.Stats
		var text string
		for token, err := range g.Text(context.Background(), prompt, generate.Params{MaxTokens: 3, Stats: &stats}) {
			if err != nil {
				panic(err)
			}
			text += token.Text
		}
		fmt.Printf("%q: %q, %d of %d prompt tokens reused\n", prompt, text, stats.ReusedTokens, stats.PromptTokens)
	}
	// Output:
	// "The old prince went to the": " house.\n", 0 of 7 prompt tokens reused
	// "The old prince went to his": " study.\n", 6 of 7 prompt tokens reused
}
