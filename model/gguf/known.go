package gguf

// Keys that this package gives a meaning to.
const (
	KeyAlignment    = "general.alignment"
	KeyArchitecture = "general.architecture"
)

const (
	defaultAlignment = 32
	maxAlignment     = 1 << 20
)

// kind is what a well-known key must hold.
type kind struct {
	want string
	ok   func(Value) bool
}

var (
	aUint32     = kind{"uint32", func(v Value) bool { return v.typ == TypeUint32 }}
	aString     = kind{"string", func(v Value) bool { return v.typ == TypeString }}
	aBool       = kind{"bool", func(v Value) bool { return v.typ == TypeBool }}
	anInteger   = kind{"integer", func(v Value) bool { return v.typ.integer() }}
	manyStrings = kind{"array of string", func(v Value) bool { return v.typ == TypeArray && v.elem == TypeString }}
	manyInts    = kind{"array of integer", func(v Value) bool { return v.typ == TypeArray && v.elem.integer() }}
	manyFloats  = kind{"array of float", func(v Value) bool { return v.typ == TypeArray && v.elem.float() }}
)

// known holds the keys of the specification that are the same for every
// architecture and that a reader acts on. A file with another type there is
// malformed, whoever reads it. Where the specification says uint32 and writers
// differ, any integer will do; not for the alignment, which says where data is.
var known = map[string]kind{
	KeyAlignment:                   aUint32,
	KeyArchitecture:                aString,
	"general.name":                 aString,
	"general.file_type":            anInteger,
	"general.quantization_version": anInteger,

	"tokenizer.ggml.model":              aString,
	"tokenizer.ggml.pre":                aString,
	"tokenizer.ggml.tokens":             manyStrings,
	"tokenizer.ggml.scores":             manyFloats,
	"tokenizer.ggml.token_type":         manyInts,
	"tokenizer.ggml.merges":             manyStrings,
	"tokenizer.ggml.bos_token_id":       anInteger,
	"tokenizer.ggml.eos_token_id":       anInteger,
	"tokenizer.ggml.eot_token_id":       anInteger,
	"tokenizer.ggml.eom_token_id":       anInteger,
	"tokenizer.ggml.unknown_token_id":   anInteger,
	"tokenizer.ggml.separator_token_id": anInteger,
	"tokenizer.ggml.padding_token_id":   anInteger,
	"tokenizer.ggml.add_bos_token":      aBool,
	"tokenizer.ggml.add_eos_token":      aBool,
	"tokenizer.ggml.add_space_prefix":   aBool,
	"tokenizer.chat_template":           aString,
}

// checkKnown refuses a well-known key with a value of another type, and an
// alignment that is none.
func checkKnown(key string, v Value) error {
	k, ok := known[key]
	if !ok {
		return nil
	}
	if !k.ok(v) {
		return typeError(v, k.want)
	}
	if key == KeyAlignment {
		return checkAlignment(v)
	}
	return nil
}

func checkAlignment(v Value) error {
	n, err := v.Uint()
	if err != nil {
		return err
	}
	if n == 0 || n&(n-1) != 0 {
		return refuse(ErrAlignment, "%d is not a power of two", n)
	}
	if n > maxAlignment {
		return refuse(ErrAlignment, "%d is above %d", n, maxAlignment)
	}
	return nil
}
