package main

import (
	"io"
	"os"
	"strings"
	"testing"
)

func TestMainPrintsText(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	os.Stdout = write
	os.Args = []string{"embed", "../../golden/model/lockstep-tiny.gguf", "Well, Prince,"}
	main()
	write.Close()
	text, err := io.ReadAll(read)
	if want := " I have been told that I was in the army."; err != nil || !strings.HasPrefix(string(text), want) {
		t.Errorf("%q, error %v; want %q", text, err, want)
	}
}
