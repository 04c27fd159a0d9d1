package quant

// codec is one row of the format table.
type codec struct {
	name       string
	blockLen   int // weights
	blockBytes int
	decode32   func(dst []float32, src []byte)
	decode64   func(dst []float64, src []byte)
	encode     func(dst []byte, src []float32)       // nil: cannot be written
	largest    float32                               // magnitude that encode takes; 0: any value, NaN too
	dot        func(src []byte, x []float64) float64 // nil: decode, then multiply
}

// halfMax is the largest finite float16: no scale can be larger.
const halfMax = 65504

// codecs is the table of formats, by id; an id without a name is no format. The
// decoders and encoders rely on Decode and Encode having checked the lengths.
var codecs = [...]codec{
	F32:    {"F32", 1, 4, decodeF32[float32], decodeF32[float64], encodeF32, 0, nil},
	F16:    {"F16", 1, 2, decodeF16[float32], decodeF16[float64], encodeF16, 0, nil},
	BF16:   {"BF16", 1, 2, decodeBF16[float32], decodeBF16[float64], encodeBF16, 0, nil},
	Q4_0:   {"Q4_0", 32, 18, decodeQ4_0[float32], decodeQ4_0[float64], encodeQ4_0, 7 * halfMax, nil},
	Q4_1:   {"Q4_1", 32, 20, decodeQ4_1[float32], decodeQ4_1[float64], nil, 0, nil},
	Q5_0:   {"Q5_0", 32, 22, decodeQ5_0[float32], decodeQ5_0[float64], nil, 0, nil},
	Q5_1:   {"Q5_1", 32, 24, decodeQ5_1[float32], decodeQ5_1[float64], nil, 0, nil},
	Q8_0:   {"Q8_0", 32, 34, decodeQ8_0[float32], decodeQ8_0[float64], encodeQ8_0, 127 * halfMax, dotQ8_0},
	Q2_K:   {"Q2_K", 256, 84, decodeQ2_K[float32], decodeQ2_K[float64], nil, 0, nil},
	Q3_K:   {"Q3_K", 256, 110, decodeQ3_K[float32], decodeQ3_K[float64], nil, 0, nil},
	Q4_K:   {"Q4_K", 256, 144, decodeQ4_K[float32], decodeQ4_K[float64], encodeQ4_K, 63 * halfMax, dotQ4_K},
	Q5_K:   {"Q5_K", 256, 176, decodeQ5_K[float32], decodeQ5_K[float64], nil, 0, nil},
	Q6_K:   {"Q6_K", 256, 210, decodeQ6_K[float32], decodeQ6_K[float64], encodeQ6_K, 127 * 31 * halfMax, dotQ6_K},
	IQ4_NL: {"IQ4_NL", 32, 18, decodeIQ4_NL[float32], decodeIQ4_NL[float64], nil, 0, nil},
	IQ4_XS: {"IQ4_XS", 256, 136, decodeIQ4_XS[float32], decodeIQ4_XS[float64], nil, 0, nil},
}
