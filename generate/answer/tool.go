package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Tool is a function that a model may call.
type Tool struct {
	Name       string
	Parameters json.RawMessage // JSON Schema of the arguments, an object; nil: they are {}
	Strict     bool            // Style.Structure holds the arguments to the schema, even if no call is required
}

var errNoObject = errors.New(`#/type: want "object"`)

// schema returns the schema of the arguments, which has the type object.
func (t Tool) schema() (json.RawMessage, error) {
	if t.Parameters == nil {
		return json.RawMessage(`{"type":"object","additionalProperties":false}`), nil
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(t.Parameters, &keys); err != nil {
		return nil, err
	}
	if kind, ok := keys["type"]; ok {
		if string(kind) != `"object"` {
			return nil, errNoObject
		}
		return t.Parameters, nil
	}
	for _, other := range []string{"$ref", "anyOf", "oneOf", "allOf", "enum", "const"} {
		if _, ok := keys[other]; ok {
			return nil, errNoObject
		}
	}
	rest := bytes.TrimSpace(t.Parameters)[1:]
	if len(keys) > 0 {
		rest = slices.Concat([]byte(","), rest)
	}
	return slices.Concat([]byte(`{"type":"object"`), rest), nil
}

// objectSchema is the part of a JSON Schema that says which parameters a tool has.
type objectSchema struct {
	Properties           json.RawMessage
	Required             []string
	AdditionalProperties json.RawMessage
	Defs                 json.RawMessage `json:"$defs"`
	Definitions          json.RawMessage
}

// object returns the parts of the schema of a tool's parameters; none if the schema has another form.
func (t Tool) object() (o objectSchema) {
	if json.Unmarshal(t.Parameters, &o) != nil {
		return objectSchema{}
	}
	return o
}

// document returns the schema of a property with the definitions that it may refer to.
func (o *objectSchema) document(schema json.RawMessage) json.RawMessage {
	own := propertiesOf(schema)
	if len(own) == 0 { // true, false or {}
		return schema
	}
	var b strings.Builder
	add := func(key string, value json.RawMessage) {
		if value != nil {
			fmt.Fprintf(&b, ",%s:%s", quote(key), value)
		}
	}
	for _, p := range own {
		if p.key != "$defs" && p.key != "definitions" {
			add(p.key, p.value)
		}
	}
	add("$defs", o.Defs)
	add("definitions", o.Definitions)
	return json.RawMessage("{" + strings.TrimPrefix(b.String(), ",") + "}")
}

// property is a member of a JSON object.
type property struct {
	key   string
	value json.RawMessage
}

// propertiesOf returns the members of a JSON object in their order, and none of another value.
func propertiesOf(object json.RawMessage) (all []property) {
	d := json.NewDecoder(strings.NewReader(string(object)))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		m := property{key: name}
		if err != nil || !ok || d.Decode(&m.value) != nil {
			return nil
		}
		all = append(all, m)
	}
	return all
}
