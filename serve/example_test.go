package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/serve"
)

func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	m, err := lockstep.Open(ctx, "model.gguf", lockstep.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := serve.New(m.Generator(), serve.Options{}) // an http.Handler
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(s.ListenAndServe(ctx, "127.0.0.1:8080"))
}

// A Server is a handler for any server of net/http.
func ExampleServer_ServeHTTP() {
	m, err := lockstep.Open(context.Background(), "../golden/model/lockstep-tiny.gguf", lockstep.Options{Device: lockstep.CPU})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := serve.New(m.Generator(), serve.Options{Name: "tiny"})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/model/", http.StripPrefix("/model", s))
	h := httptest.NewServer(mux)
	defer h.Close()

	r, err := http.Post(h.URL+"/model/v1/completions", "application/json", strings.NewReader(`{"prompt": "Well, Prince,", "temperature": 0}`))
	if err != nil {
		log.Fatal(err)
	}
	defer r.Body.Close()
	var answer struct {
		Choices []struct{ Text string }
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Choices[0].Text)
	// Output: I have been told that I was in the army. I was in the army
}
