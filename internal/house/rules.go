package house

// Modules that some room may use, beside the standard library.
const (
	gonum  = "gonum.org/v1/gonum"
	plot   = "gonum.org/v1/plot"
	goCmp  = "github.com/google/go-cmp"
	purego = "github.com/ebitengine/purego"
	mmap   = "github.com/edsrzf/mmap-go"
	gonja  = "github.com/nikolalohinski/gonja/v2"
	xsync  = "golang.org/x/sync"
)

// anything lets a room import what it likes.
const anything = "*"

// room is a row of the table: what the packages at path may import beside the
// standard library. A row ending in /... covers everything below it.
type room struct {
	path string
	may  []string // packages of this module, exactly; or other modules, with all below
}

// rooms is the table. A package without a row is an error, so that a new room is
// a decision and not an accident.
var rooms = []room{
	{"model", []string{"model/gguf", "model/tokenizer", "quant", "internal/portable"}},
	{"model/gguf", []string{"quant", "internal/atomicfile", mmap}},
	{"model/tokenizer", []string{"model/tokenizer/internal/jinja"}},
	{"model/tokenizer/internal/jinja", []string{gonja}},
	{"quant", nil},
	// The readers of weights guard them with gguf.Guard: a mapped file can be cut short under them.
	{"ref", []string{"model", "model/gguf", "quant", "internal/portable", xsync}},
	{"ptxgen/ptx", nil},
	{"ptxgen", []string{"ptxgen/ptx", "quant"}},
	{"driver", nil},
	{"driver/cuda", []string{"driver", purego}},
	{"driver/emu", []string{"driver", "quant", "driver/emu/internal/alu"}},
	{"driver/emu/internal/alu", nil},
	{"accel", []string{"model", "model/gguf", "quant", "ptxgen", "ptxgen/ptx", "driver", "internal/modules", "internal/portable"}},
	{"golden", []string{"model", "model/gguf", "internal/atomicfile", "internal/npy"}},
	{"conformance", []string{
		"model", "model/gguf", "model/tokenizer", "quant", "ref", "ptxgen", "ptxgen/ptx", "driver", "driver/cuda",
		"driver/emu", "accel", "golden", "internal/faulty", "internal/modules", "internal/npy", "internal/synth", "internal/tiny", goCmp, gonum,
	}},
	{"tools/...", []string{anything}},
	// A module of its own, with what a program imports that has a model in it.
	{"examples/embed", []string{"model", "ref", "accel", "driver/cuda"}},

	{"internal/atomicfile", nil},
	{"internal/faulty", []string{"driver"}},
	{"internal/house", nil},
	{"internal/kernelbench", []string{"driver", "internal/modules", "internal/synth", "ptxgen", "ptxgen/ptx", "quant"}},
	{"internal/modelbench", []string{"driver", "internal/kernelbench", "model", plot}},
	{"internal/layerdiff", []string{"quant"}}, // it compares both engines, and so imports neither
	{"internal/modules", []string{"driver", "ptxgen/ptx"}},
	{"internal/npy", nil},
	{"internal/perplexity", []string{"model"}},
	{"internal/portable", nil},
	{"internal/ptxas", []string{"internal/atomicfile"}},
	{"internal/requant", []string{"model/gguf", "quant"}},
	{"internal/synth", []string{"internal/portable", "internal/requant", "model/gguf", "model/tokenizer", "quant"}},
	{"internal/tiny", []string{"model/gguf", "model/tokenizer", "quant"}},
}

// never is a pair that must not meet, even through other packages.
type never struct{ from, to, why string }

var nevers = []never{
	{"ref", "accel", "the oracle must not share code with what it judges"},
	{"accel", "ref", "the accelerator must not share code with its oracle"},
	{"ref", "ptxgen", "the oracle must not share code with what it judges"},
	{"ref", "driver", "the reference runs without a device"},
	{"ptxgen", "driver", "kernels are made without a device"},
	{"accel", "driver/cuda", "the device is injected"},
	{"accel", "driver/emu", "the device is injected"},
	{"driver/emu", "ptxgen", "an emulator with the printer's own representation would hide the printer's bugs"},
	{"model", "ref", "the seam knows no engine"},
	{"model", "accel", "the seam knows no engine"},
	{"golden", "ref", "the engine is injected, so that any engine can be held to the golden files"},
}

// roomOf finds the row of a package: its own, else the innermost that covers it.
func roomOf(pkg string) (room, bool) {
	var best room
	found := false
	for _, r := range rooms {
		if r.path == pkg {
			return r, true
		}
		if root, ok := cutDots(r.path); ok && below(pkg, root) && len(r.path) > len(best.path) {
			best, found = r, true
		}
	}
	return best, found
}

func cutDots(p string) (string, bool) {
	const dots = "/..."
	if len(p) > len(dots) && p[len(p)-len(dots):] == dots {
		return p[:len(p)-len(dots)], true
	}
	return p, false
}

func (r room) allows(imp string) bool {
	own, ours := local(imp)
	for _, m := range r.may {
		switch {
		case m == anything, ours && m == own, !ours && below(imp, m):
			return true
		}
	}
	return false
}
