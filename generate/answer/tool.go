package answer

import (
	"encoding/json"
	"strings"
)

// Tool is a function that a model may call.
type Tool struct {
	Name       string
	Parameters json.RawMessage // JSON Schema of the arguments, an object; nil: they are {}
}

// objectSchema is the part of a JSON Schema that says which parameters a tool has.
type objectSchema struct {
	Properties           json.RawMessage
}

// object returns the schema of a tool's parameters. A schema of another form has none.
func (t Tool) object() (o objectSchema) {
	if json.Unmarshal(t.Parameters, &o) != nil {
		return objectSchema{}
	}
	return o
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
