package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// gemmaCall returns the structure of a call in the style of Gemma 4 from behind the opener.
func gemmaCall(names []string, arguments structure) structure {
	var heads structure
	for _, name := range names {
		heads.AnyOf = append(heads.AnyOf, text(gemmaHead+name))
	}
	return sequence(heads, arguments, marker(gemmaClose))
}

// How deep lists and objects nest in values that have no schema. Structures cannot refer to
// themselves.
const (
	anyDepth   = 2 // in the value of a parameter
	maxNesting = 20
)

// gemmaText is the structure of any string.
func gemmaText() structure {
	return sequence(marker(stringMark), structure{Until: []string{stringMark}})
}

// gemmaList returns the structure of items between brackets, with commas between them.
func gemmaList(open, end string, item structure) structure {
	next := sequence(text(","), item)
	return sequence(text(open), optional(sequence(item, structure{Repeat: &next})), text(end))
}

// gemmaAny returns the structure of any value whose lists and objects nest up to depth.
func gemmaAny(depth int) structure {
	any := structure{AnyOf: []structure{gemmaText(), {Schema: []byte(`{"type":["number","boolean","null"]}`)}}}
	if depth > 0 {
		item := gemmaAny(depth - 1)
		any.AnyOf = append(any.AnyOf, gemmaList("[", "]", item), gemmaAnyObject(item))
	}
	return any
}

// gemmaAnyObject returns the structure of an object with any keys.
func gemmaAnyObject(value structure) structure {
	return gemmaList("{", "}", sequence(matching(`[\p{L}\p{N}_.$-]{1,64}:`), value))
}

// gemmaSchemas writes values of a JSON Schema in the style of Gemma 4.
type gemmaSchemas struct {
	field string       // names the schema in errors
	root  objectSchema // has the definitions
}

// gemma returns the structure of the arguments of a tool.
func (t Tool) gemma(field string) (structure, error) {
	schema, err := t.schema()
	if err != nil {
		return structure{}, fmt.Errorf("%s: %w", field, err)
	}
	g := gemmaSchemas{field, t.object()}
	return g.value(schema, "", 0)
}

// fail returns an error at a place of the schema.
func (g *gemmaSchemas) fail(at, why string) (structure, error) {
	return structure{}, fmt.Errorf("%s: #%s: %s", g.field, at, why)
}

// The keywords of JSON Schema that value understands, beside annotations.
var (
	gemmaKeywords = []string{
		"type", "enum", "const", "anyOf", "oneOf", "$ref", "$defs", "definitions", "properties", "required", "additionalProperties", "items",
	}
	annotations = []string{"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id"}
	ofNumbers   = []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)

// value returns the structure of the values that satisfy the schema at a place.
func (g *gemmaSchemas) value(schema json.RawMessage, at string, depth int) (structure, error) {
	if depth > maxNesting {
		return g.fail(at, "the schema refers to itself or nests too deep for calls of this model")
	}
	if string(schema) == "true" {
		return gemmaAny(anyDepth), nil
	}
	keywords := map[string]json.RawMessage{}
	if err := json.Unmarshal(schema, &keywords); err != nil {
		return g.fail(at, "want an object or true")
	}
	for _, p := range propertiesOf(schema) {
		if !slices.Contains(slices.Concat(gemmaKeywords, annotations, ofNumbers), p.key) {
			return g.fail(at+"/"+p.key, "not supported with calls of this model")
		}
	}
	if ref, ok := keywords["$ref"]; ok {
		return g.reference(ref, at, depth)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if _, ok := keywords[key]; ok {
			return g.alternatives(keywords[key], at+"/"+key, depth)
		}
	}
	var s valueSchema
	if err := json.Unmarshal(schema, &s); err != nil {
		return g.fail(at, err.Error())
	}
	if s.Const != nil || s.Enum != nil {
		return g.choice(s.values(), at)
	}
	var names []string
	var one string
	switch {
	case s.Type == nil:
		return gemmaAny(anyDepth), nil
	case json.Unmarshal(s.Type, &one) == nil:
		names = []string{one}
	case json.Unmarshal(s.Type, &names) != nil:
		return g.fail(at+"/type", "want a string or a list of strings")
	}
	var all structure
	for _, name := range names {
		x, err := g.typed(name, schema, keywords, at, depth)
		if err != nil {
			return structure{}, err
		}
		all.AnyOf = append(all.AnyOf, x)
	}
	return all, nil
}

// typed returns the structure of the values of a type.
func (g *gemmaSchemas) typed(name string, schema json.RawMessage, keywords map[string]json.RawMessage, at string, depth int) (structure, error) {
	switch name {
	case "string":
		return gemmaText(), nil
	case "array":
		items, ok := keywords["items"]
		if !ok {
			return gemmaList("[", "]", gemmaAny(anyDepth)), nil
		}
		item, err := g.value(items, at+"/items", depth+1)
		return gemmaList("[", "]", item), err
	case "object":
		return g.object(schema, at, depth)
	case "number", "integer", "boolean", "null":
		own := map[string]any{"type": name}
		for _, key := range ofNumbers {
			if limit, ok := keywords[key]; ok && (name == "number" || name == "integer") {
				own[key] = limit
			}
		}
		number, err := json.Marshal(own)
		return structure{Schema: number, Name: g.field}, err
	}
	return g.fail(at+"/type", fmt.Sprintf("%.80q is not a type", name))
}

// reference returns the structure of the definition that a $ref names.
func (g *gemmaSchemas) reference(ref json.RawMessage, at string, depth int) (structure, error) {
	var to string
	if err := json.Unmarshal(ref, &to); err != nil {
		return g.fail(at+"/$ref", err.Error())
	}
	for prefix, definitions := range map[string]json.RawMessage{"#/$defs/": g.root.Defs, "#/definitions/": g.root.Definitions} {
		name, found := strings.CutPrefix(to, prefix)
		for _, p := range propertiesOf(definitions) {
			if found && p.key == name {
				return g.value(p.value, strings.TrimPrefix(to, "#"), depth+1)
			}
		}
	}
	return g.fail(at+"/$ref", fmt.Sprintf("%.80q is not in $defs", to))
}

// alternatives returns the structure of the values that satisfy one of several schemas.
func (g *gemmaSchemas) alternatives(list json.RawMessage, at string, depth int) (structure, error) {
	var schemas []json.RawMessage
	if err := json.Unmarshal(list, &schemas); err != nil || len(schemas) == 0 {
		return g.fail(at, "want a list of schemas")
	}
	var all structure
	for i, schema := range schemas {
		x, err := g.value(schema, fmt.Sprintf("%s/%d", at, i), depth+1)
		if err != nil {
			return structure{}, err
		}
		all.AnyOf = append(all.AnyOf, x)
	}
	return all, nil
}

// choice returns the structure of one of several values.
func (g *gemmaSchemas) choice(values []any, at string) (structure, error) {
	var all structure
	for _, v := range values {
		x, err := gemmaValue(v)
		if err != nil {
			return g.fail(at, err.Error())
		}
		all.AnyOf = append(all.AnyOf, x)
	}
	return all, nil
}

// gemmaValue returns the structure of one value.
func gemmaValue(v any) (structure, error) {
	switch v := v.(type) {
	case string:
		if strings.Contains(v, stringMark) {
			return structure{}, errors.New("a string of calls of this model cannot contain " + stringMark)
		}
		return sequence(marker(stringMark), text(v), marker(stringMark)), nil
	case []any, map[string]any:
		return structure{}, errors.New("lists and objects in enum and const are not supported with calls of this model")
	}
	source, err := json.Marshal(v)
	return text(string(source)), err
}

// object returns the structure of the objects that satisfy a schema. Their members come in its
// order.
func (g *gemmaSchemas) object(schema json.RawMessage, at string, depth int) (structure, error) {
	var o objectSchema
	if err := json.Unmarshal(schema, &o); err != nil {
		return g.fail(at, err.Error())
	}
	properties := propertiesOf(o.Properties)
	for _, name := range o.Required {
		if !slices.ContainsFunc(properties, func(p property) bool { return p.key == name }) {
			return g.fail(at+"/required", fmt.Sprintf("%q is not in properties", name))
		}
	}
	switch extra := string(o.AdditionalProperties); {
	case extra != "" && extra != "false":
		return g.fail(at+"/additionalProperties", "only false is supported with calls of this model")
	case extra == "" && o.Properties == nil:
		return gemmaAnyObject(gemmaAny(anyDepth)), nil
	}
	var members []structure
	for _, p := range properties {
		at := at + "/properties/" + p.key
		if p.key == "" || len(p.key) > maxName || strings.ContainsAny(p.key, notInKeys+":") {
			return g.fail(at, "calls of this model cannot have this name")
		}
		value, err := g.value(p.value, at, depth+1)
		if err != nil {
			return structure{}, err
		}
		members = append(members, sequence(text(p.key+":"), value))
	}
	required := func(i int) bool { return slices.Contains(o.Required, properties[i].key) }
	return sequence(text("{"), inOrder(members, text(","), required), text("}")), nil
}
