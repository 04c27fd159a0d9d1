package quant

// layout is a row of the table of block formats: everything that host code knows of a
// format. Callers of encode and dot must check the lengths.
type layout struct {
	name       string
	blockLen   int    // weights per block
	subLen     int    // weights per sub-block; 0: single weights
	blockBytes int    // bytes per block
	fileType   uint32 // general.file_type of a model in this format (llama_ftype in llama.h)

	encode func(dst []byte, src []float32) // nil if the format cannot be written
	maxAbs float32                         // largest magnitude that encode accepts; 0: any value, also NaN

	dot func(src []byte, x []float64) float64 // nil: Dot decodes and multiplies
}

// maxF16 is the largest finite float16. A scale cannot be larger.
const maxF16 = 65504

// layouts is the table of formats. The index is the ggml type id. docs/adding-a-format.md
// lists the steps for a new row.
var layouts = [...]layout{
	F32:    {"F32", 1, 0, 4, 0, encodeF32, 0, nil},
	F16:    {"F16", 1, 0, 2, 1, encodeF16, 0, nil},
	BF16:   {"BF16", 1, 0, 2, 32, encodeBF16, 0, nil},
	Q4_0:   {"Q4_0", 32, 32, 18, 2, encodeQ4_0, 7 * maxF16, nil},
	Q4_1:   {"Q4_1", 32, 32, 20, 3, nil, 0, nil},
	Q5_0:   {"Q5_0", 32, 32, 22, 8, nil, 0, nil},
	Q5_1:   {"Q5_1", 32, 32, 24, 9, nil, 0, nil},
	Q8_0:   {"Q8_0", 32, 32, 34, 7, encodeQ8_0, 127 * maxF16, dotQ8_0},
	Q2_K:   {"Q2_K", 256, 16, 84, 10, nil, 0, nil},
	Q3_K:   {"Q3_K", 256, 16, 110, 12, nil, 0, nil},
	Q4_K:   {"Q4_K", 256, 32, 144, 14, encodeQ4_K, 63 * maxF16, dotQ4_K},
	Q5_K:   {"Q5_K", 256, 32, 176, 16, nil, 0, nil},
	Q6_K:   {"Q6_K", 256, 16, 210, 18, encodeQ6_K, 127 * 31 * maxF16, dotQ6_K},
	IQ4_NL: {"IQ4_NL", 32, 32, 18, 25, nil, 0, nil},
	IQ4_XS: {"IQ4_XS", 256, 32, 136, 30, nil, 0, nil},
	MXFP4:  {"MXFP4", 32, 32, 17, 38, encodeMXFP4, 0x1.8p127, nil},
}
