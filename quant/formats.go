package quant

// layout is a row of the table of block formats: everything that host code knows of a
// format. Callers of decode, encode and dot must check the lengths.
type layout struct {
	name       string
	blockLen   int    // weights per block
	blockBytes int    // bytes per block
	fileType   uint32 // general.file_type of a model in this format (llama_ftype in llama.h)

	decode32 func(dst []float32, src []byte)
	decode64 func(dst []float64, src []byte)

	encode func(dst []byte, src []float32) // nil if the format cannot be written
	maxAbs float32                         // largest magnitude that encode accepts; 0: any value, also NaN

	dot func(src []byte, x []float64) float64 // nil: Dot decodes and multiplies
}

// maxF16 is the largest finite float16. A scale cannot be larger.
const maxF16 = 65504

// layouts is the table of formats. The index is the ggml type id. docs/adding-a-format.md
// lists the steps for a new row.
var layouts = [...]layout{
	F32:    {"F32", 1, 4, 0, decodeF32[float32], decodeF32[float64], encodeF32, 0, nil},
	F16:    {"F16", 1, 2, 1, decodeF16[float32], decodeF16[float64], encodeF16, 0, nil},
	BF16:   {"BF16", 1, 2, 32, decodeBF16[float32], decodeBF16[float64], encodeBF16, 0, nil},
	Q4_0:   {"Q4_0", 32, 18, 2, decodeQ4_0[float32], decodeQ4_0[float64], encodeQ4_0, 7 * maxF16, nil},
	Q4_1:   {"Q4_1", 32, 20, 3, decodeQ4_1[float32], decodeQ4_1[float64], nil, 0, nil},
	Q5_0:   {"Q5_0", 32, 22, 8, decodeQ5_0[float32], decodeQ5_0[float64], nil, 0, nil},
	Q5_1:   {"Q5_1", 32, 24, 9, decodeQ5_1[float32], decodeQ5_1[float64], nil, 0, nil},
	Q8_0:   {"Q8_0", 32, 34, 7, decodeQ8_0[float32], decodeQ8_0[float64], encodeQ8_0, 127 * maxF16, dotQ8_0},
	Q2_K:   {"Q2_K", 256, 84, 10, decodeQ2_K[float32], decodeQ2_K[float64], nil, 0, nil},
	Q3_K:   {"Q3_K", 256, 110, 12, decodeQ3_K[float32], decodeQ3_K[float64], nil, 0, nil},
	Q4_K:   {"Q4_K", 256, 144, 14, decodeQ4_K[float32], decodeQ4_K[float64], encodeQ4_K, 63 * maxF16, dotQ4_K},
	Q5_K:   {"Q5_K", 256, 176, 16, decodeQ5_K[float32], decodeQ5_K[float64], nil, 0, nil},
	Q6_K:   {"Q6_K", 256, 210, 18, decodeQ6_K[float32], decodeQ6_K[float64], encodeQ6_K, 127 * 31 * maxF16, dotQ6_K},
	IQ4_NL: {"IQ4_NL", 32, 18, 25, decodeIQ4_NL[float32], decodeIQ4_NL[float64], nil, 0, nil},
	IQ4_XS: {"IQ4_XS", 256, 136, 30, decodeIQ4_XS[float32], decodeIQ4_XS[float64], nil, 0, nil},
	MXFP4:  {"MXFP4", 32, 17, 38, decodeMXFP4[float32], decodeMXFP4[float64], nil, 0, nil},
}
