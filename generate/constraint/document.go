package constraint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The limits of a schema's text.
const (
	maxSchema = 1 << 20 // bytes
	maxDepth  = 64      // brackets within each other
)

// value is a JSON value. Objects keep the order of their properties.
type value struct {
	kind   string   // "object", "array", "string", "number", "boolean" or "null"
	keys   []string // of an object
	values []*value // of an object or array
	text   string   // a string's characters, a number's digits, true or false
}

// get returns the value of a key, or nil.
func (v *value) get(key string) *value {
	for i, k := range v.keys {
		if k == key {
			return v.values[i]
		}
	}
	return nil
}

// parse reads one JSON value. Equal keys in an object are an error.
func parse(data []byte) (*value, error) {
	switch {
	case len(data) > maxSchema:
		return nil, limitError{"bytes", maxSchema}
	case !utf8.Valid(data):
		return nil, errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d, "#", 0)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is more after the value")
	}
	return v, nil
}

func parseValue(d *json.Decoder, path string, depth int) (*value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s: %w", path, limitError{"levels", maxDepth})
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch x := token.(type) {
	case string:
		return &value{kind: "string", text: x}, nil
	case json.Number:
		return &value{kind: "number", text: x.String()}, nil
	case bool:
		return &value{kind: "boolean", text: fmt.Sprint(x)}, nil
	case nil:
		return &value{kind: "null", text: "null"}, nil
	}
	v := &value{kind: "array"}
	if token == json.Delim('{') {
		v.kind = "object"
	}
	seen := map[string]bool{}
	for d.More() {
		at := fmt.Sprintf("%s/%d", path, len(v.values))
		if v.kind == "object" {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name := key.(string) // Decoder checks it
			at = pointer(path, name)
			if seen[name] {
				return nil, fmt.Errorf("%s: it is there twice", at)
			}
			seen[name] = true
			v.keys = append(v.keys, name)
		}
		item, err := parseValue(d, at, depth+1)
		if err != nil {
			return nil, err
		}
		v.values = append(v.values, item)
	}
	_, err = d.Token()
	return v, err
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
var pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")

// pointer returns the JSON Pointer (RFC 6901) of a member of the value at path.
func pointer(path, key string) string { return path + "/" + pointerEscapes.Replace(key) }
