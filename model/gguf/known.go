package gguf

const keyAlignment = "general.alignment"

const (
	defaultAlignment = 32
	maxAlignment     = 1 << 20
)

// kind is the type that a well-known key must have.
type kind struct {
	want string
	ok   func(Value) bool
}

var (
	aUint32     = kind{"uint32", func(v Value) bool { return v.typ == typeUint32 }}
	aString     = kind{"string", func(v Value) bool { return v.typ == typeString }}
	aBool       = kind{"bool", func(v Value) bool { return v.typ == typeBool }}
	aFloat      = kind{"float", func(v Value) bool { return v.typ.float() }}
	anInteger   = kind{"integer", func(v Value) bool { return v.typ.integer() }}
	manyStrings = kind{"array of string", func(v Value) bool { return v.typ == typeArray && v.elem == typeString }}
	manyInts    = kind{"array of integer", func(v Value) bool { return v.typ == typeArray && v.elem.integer() }}
	manyFloats  = kind{"array of float", func(v Value) bool { return v.typ == typeArray && v.elem.float() }}
)

// known lists the keys of the specification and of split models that do not depend on the
// architecture, and their types. A file whose key has another type is malformed. Some writers use other
// integers where the specification says uint32. So any integer is accepted there, except for
// the alignment.
var known = map[string]kind{
	keyAlignment:                   aUint32,
	"general.architecture":         aString,
	"general.name":                 aString,
	"general.file_type":            anInteger,
	"general.quantization_version": anInteger,
	keySplitCount:                  anInteger,
	keySplitNo:                     anInteger,
	keySplitTensors:                anInteger,

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
	"tokenizer.chat_template.tool_use":  aString,
	"tokenizer.chat_templates":          manyStrings,
}

// checkKnown refuses a well-known key with a value of another type, and an invalid
// alignment.
func checkKnown(key string, v Value) error {
	k, ok := known[key]
	if !ok {
		return nil
	}
	if !k.ok(v) {
		return typeError(v, k.want)
	}
	if key == keyAlignment {
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
		return refuse(errAlignment, "%d is not a power of two", n)
	}
	if n > maxAlignment {
		return refuse(errAlignment, "%d is above %d", n, maxAlignment)
	}
	return nil
}
