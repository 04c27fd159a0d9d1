// Command goldenmodel writes the tiny model of an architecture for golden/arch: seeded
// random F32 weights and no vocabulary. The architecture needs a row in
// internal/tiny/shapes.go. Equal arguments give equal bytes.
//
//	go run ./tools/goldenmodel -arch NAME -seed 1 -out golden/arch/NAME.gguf
//	python3 tools/oracle/oracle.py --models golden/arch --only NAME --out golden/arch
//	go test ./golden -update
//
// The second command computes the logits in float64 with transformers. The third writes
// the logits of the reference, after NAME was added to golden/cases.go.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/internal/atomicfile"
	"github.com/lockstep-go/lockstep/internal/tiny"
)

func main() {
	arch := flag.String("arch", "", "value of general.architecture: "+strings.Join(tiny.Architectures(), ", "))
	seed := flag.Uint64("seed", 1, "seed of the weights")
	out := flag.String("out", "", "file to write")
	flag.Parse()
	if err := run(*arch, *seed, *out); err != nil {
		fmt.Fprintf(os.Stderr, "goldenmodel: %v\n", err)
		os.Exit(1)
	}
}

func run(arch string, seed uint64, out string) error {
	switch {
	case !slices.Contains(tiny.Architectures(), arch):
		return fmt.Errorf("-arch %q: want one of %s", arch, strings.Join(tiny.Architectures(), ", "))
	case out == "":
		return fmt.Errorf("-out is missing")
	}
	m := tiny.New(arch, seed)
	// The oracle needs the head size, which loaders derive if it is absent.
	for _, key := range []string{".attention.key_length", ".attention.value_length"} {
		if !m.Has(key) {
			m.Set(key, uint32(tiny.HeadDim))
		}
	}
	return atomicfile.Write(out, func(w io.Writer) error {
		_, err := w.Write(m.Bytes())
		return err
	})
}
