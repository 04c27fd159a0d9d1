package gguf

import "github.com/lockstep-go/lockstep/quant"

// otherFormats names the ids of ggml's enum ggml_type that this module does not
// compute with, so that an error can say what the file holds.
var otherFormats = map[quant.Format]struct {
	name    string
	removed bool // from ggml itself: no engine reads it any more
}{
	4:  {"Q4_2", true},
	5:  {"Q4_3", true},
	9:  {"Q8_1", false},
	15: {"Q8_K", false},
	16: {"IQ2_XXS", false},
	17: {"IQ2_XS", false},
	18: {"IQ3_XXS", false},
	19: {"IQ1_S", false},
	21: {"IQ3_S", false},
	22: {"IQ2_S", false},
	24: {"I8", false},
	25: {"I16", false},
	26: {"I32", false},
	27: {"I64", false},
	28: {"F64", false},
	29: {"IQ1_M", false},
	31: {"Q4_0_4_4", true},
	32: {"Q4_0_4_8", true},
	33: {"Q4_0_8_8", true},
	34: {"TQ1_0", false},
	35: {"TQ2_0", false},
	36: {"IQ4_NL_4_4", true},
	37: {"IQ4_NL_4_8", true},
	38: {"IQ4_NL_8_8", true},
	39: {"MXFP4", false},
	40: {"NVFP4", false},
	41: {"Q1_0", false},
	42: {"Q2_0", false},
}

func checkFormat(f quant.Format) error {
	if f.Valid() {
		return nil
	}
	switch o, known := otherFormats[f]; {
	case !known:
		return refuse(ErrUnsupportedFormat, "format %d is unknown", uint32(f))
	case o.removed:
		return refuse(ErrUnsupportedFormat, "format %d (%s) was removed from ggml and is not supported", uint32(f), o.name)
	default:
		return refuse(ErrUnsupportedFormat, "format %d (%s) is not supported", uint32(f), o.name)
	}
}
