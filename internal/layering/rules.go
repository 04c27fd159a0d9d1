package layering

// Modules that a package may import beside the standard library.
const (
	gonum  = "gonum.org/v1/gonum"
	goCmp  = "github.com/google/go-cmp"
	purego = "github.com/ebitengine/purego"
	mmap   = "github.com/edsrzf/mmap-go"
	xsync  = "golang.org/x/sync"
	xtext  = "golang.org/x/text"

	prometheus = "github.com/prometheus/client_golang"
	jsonschema = "github.com/santhosh-tekuri/jsonschema/v6"
)

// anything allows every import.
const anything = "*"

// rule lists what a package may import beside the standard library.
//
// An entry is a package of this module, or the path of another module, which
// includes its packages. A path that ends in /... includes every package below it.
type rule struct {
	pkg string
	may []string
}

// rules is the import table. A package without a row is an error, so that each new
// package is a decision.
var rules = []rule{
	{".", []string{"accel", "driver", "driver/cuda", "driver/emu", "generate", "model", "model/tokenizer", "ref"}},
	{"model", []string{"model/gguf", "model/sampling", "model/tokenizer", "quant", "internal/portable"}},
	{"model/gguf", []string{"quant", "internal/atomicfile", mmap}},
	{"model/sampling", []string{"internal/portable"}},
	{"model/tokenizer", []string{"model/tokenizer/internal/...", xtext}},
	{"model/tokenizer/internal/...", nil},
	{"generate", []string{"model", "model/sampling", "model/tokenizer"}},
	{"generate/answer", []string{"generate/constraint"}},
	// The tests of constraint use the vocabularies of model files.
	{"generate/constraint", []string{"model", "model/gguf", "model/sampling", "model/tokenizer", jsonschema}},
	// serve reads the sentinels of driver, no device.
	{"serve", []string{"driver", "generate", "generate/answer", "generate/constraint", "model", "model/sampling", "model/tokenizer", prometheus}},
	{"quant", []string{"internal/float16", "internal/portable"}},
	// ref reads mapped weights, so it needs gguf.Guard against a file that shrinks.
	{"ref", []string{"model", "model/gguf", "model/sampling", "quant", "internal/float16", "internal/portable", "internal/product", xsync}},
	{"ptxgen/...", []string{"internal/float16", "internal/product", "internal/sizeclass", "ptxgen/...", "quant"}},
	{"ptxgen/ptx", nil},
	{"driver", nil},
	{"driver/cuda", []string{"driver", "internal/nvml", "internal/ptxlog/...", purego}},
	{"driver/emu", []string{"driver", "driver/emu/internal/..."}},
	{"driver/emu/internal/...", nil},
	{"accel", accelImports},
	{"accel/internal/...", accelImports},
	{"golden", []string{"model", "model/gguf", "internal/atomicfile", "internal/npy"}},
	{"conformance", []string{"generate", "model", "model/sampling", goCmp}},
	{"conformance/internal/...", []string{
		"conformance/internal/...", "driver", "driver/emu", "internal/float16", "internal/kernelcache", "internal/accelnumerics", "internal/product", "model", "model/sampling", "ptxgen/...", "quant", gonum,
	}},
	{"tools/...", []string{anything}},
	// examples/embed is a module of its own, like a program of a user.
	{"examples/embed", []string{".", "generate"}},

	{"internal/apicount", nil},
	{"internal/atomicfile", nil},
	{"internal/chart", []string{"internal/chart/charttest"}},
	{"internal/chart/charttest", nil},
	{"internal/faultinject", []string{"driver"}},
	{"internal/float16", nil},
	{"internal/kernelbench", []string{"driver", "internal/kernelcache", "internal/synth", "model/sampling", "ptxgen/...", "quant", gonum}},
	// layerdiff compares both engines, so it imports neither.
	{"internal/layerdiff", []string{"internal/chart/...", "internal/float16", "quant", gonum}},
	{"internal/hub", []string{"internal/atomicfile", "internal/library"}},
	{"internal/layering", nil},
	{"internal/library", nil},
	{"internal/modelbench", []string{"driver", "generate", "internal/chart", "internal/kernelbench", "model", "model/sampling", "quant", gonum}},
	{"internal/kernelcache", []string{"driver", "ptxgen/ptx"}},
	{"internal/npy", nil},
	{"internal/nvml", []string{"driver"}},
	{"internal/perplexity", []string{"model"}},
	{"internal/portable", nil},
	{"internal/product", []string{"internal/float16", "quant"}},
	{"internal/accelnumerics", []string{"model", "ref"}},
	{"internal/ptxas", []string{"internal/atomicfile", "internal/ptxlog/..."}},
	{"internal/ptxlog", []string{"internal/ptxlog/ptxlogtest"}},
	{"internal/ptxlog/ptxlogtest", nil},
	{"internal/requant", []string{"model/gguf", "quant"}},
	{"internal/servebench", []string{"internal/chart/...", "internal/portable", gonum}},
	{"internal/sizeclass", nil},
	{"internal/skipcheck", nil},
	{"internal/synth", []string{"internal/float16", "internal/portable", "internal/requant", "model/gguf", "model/tokenizer", "quant"}},
	{"internal/tiny", []string{"model/gguf", "model/tokenizer", "quant"}},
}

var accelImports = []string{
	"accel/internal/...", "model", "model/gguf", "model/sampling", "quant", "ptxgen/...", "driver", "internal/kernelcache", "internal/portable", "internal/sizeclass",
}

// forbidden lists imports that are an error even through other packages. from and to
// include the packages below them.
var forbidden = []struct{ from, to, why string }{
	{"ref", "accel", "the reference must not share code with the engine that it judges"},
	{"ref", "ptxgen", "the reference must not share code with the engine that it judges"},
	{"ref", "driver", "the reference runs without a device"},
	{"accel", "ref", "the accelerator must not share code with the reference"},
	{"accel", "driver/cuda", "the device is injected"},
	{"accel", "driver/emu", "the device is injected"},
	{"ptxgen", "driver", "kernels are generated without a device"},
	{"driver/emu", "ptxgen", "an emulator that shared the builder's instruction types would share its bugs"},
	{"model", "ref", "model defines the engine interface and imports no engine"},
	{"model", "accel", "model defines the engine interface and imports no engine"},
	{"generate", "ref", "the engine is injected"},
	{"generate", "accel", "the engine is injected"},
	{"serve", "ref", "the generator is injected"},
	{"serve", "accel", "the generator is injected"},
	{"golden", "ref", "the engine is injected, so that the golden files can check any engine"},
}

// ruleFor returns the row of pkg: its own, or else the longest /... row that includes it.
func ruleFor(pkg string) (rule, bool) {
	var best rule
	for _, r := range rules {
		if r.pkg == pkg {
			return r, true
		}
		if matches(r.pkg, pkg) && len(r.pkg) > len(best.pkg) {
			best = r
		}
	}
	return best, best.pkg != ""
}

func (r rule) allows(imp string) bool {
	own, ours := local(imp)
	for _, m := range r.may {
		if m == anything || ours && matches(m, own) || !ours && below(imp, m) {
			return true
		}
	}
	return false
}
