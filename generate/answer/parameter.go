package answer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// kind is how Qwen3-Coder writes the value of a parameter.
type kind uint8

const (
	jsonValue kind = iota // as JSON; what is no JSON is text
	plainText             // as text
	textOrNull
)

// json returns a value as JSON. Python's True, False and None count as JSON, because templates write
// them in earlier calls.
func (k kind) json(text string) []byte {
	python := map[string]string{"True": "true", "False": "false", "None": "null"}
	switch {
	case k == textOrNull && text == "null", k == jsonValue && json.Valid([]byte(text)):
		return []byte(text)
	case k == jsonValue && python[text] != "":
		return []byte(python[text])
	}
	return quote(text)
}

// valueSchema is the part of a JSON Schema that says whether a value is text.
type valueSchema struct {
	Type                json.RawMessage
	Enum                []any
	Const               *any
	AnyOf, OneOf, AllOf []json.RawMessage
	Pattern, Format     *string
	MinLength           *int
	MaxLength           *int
}

// kindOf returns the kind of the values that satisfy a schema.
func kindOf(schema json.RawMessage) kind {
	text, null, other := types(schema)
	switch {
	case !text || other:
		return jsonValue
	case null:
		return textOrNull
	}
	return plainText
}

// types returns which types of values satisfy a schema: text, null, or others. Without a type
// it may be any.
func types(schema json.RawMessage) (text, null, other bool) {
	var s valueSchema
	if json.Unmarshal(schema, &s) != nil {
		return true, true, true
	}
	add := func(t string) {
		text, null, other = text || t == "string", null || t == "null", other || t != "string" && t != "null"
	}
	var one string
	var several []string
	switch {
	case json.Unmarshal(s.Type, &one) == nil:
		add(one)
	case json.Unmarshal(s.Type, &several) == nil:
		for _, t := range several {
			add(t)
		}
	case s.Const != nil || s.Enum != nil:
		for _, v := range s.values() {
			switch v.(type) {
			case string:
				add("string")
			case nil:
				add("null")
			default:
				add("other")
			}
		}
	case s.AnyOf != nil || s.OneOf != nil || s.AllOf != nil:
		for _, sub := range slices.Concat(s.AnyOf, s.OneOf, s.AllOf) {
			t, n, o := types(sub)
			text, null, other = text || t, null || n, other || o
		}
	case s.Pattern != nil || s.Format != nil || s.MinLength != nil || s.MaxLength != nil:
		add("string")
	default:
		return true, true, true
	}
	return text, null, other
}

// values returns the values of enum or const.
func (s *valueSchema) values() []any {
	if s.Const != nil {
		return []any{*s.Const}
	}
	return s.Enum
}

// textsOf returns the texts that satisfy a schema of texts. free means that any text does. Keywords
// that restrict texts otherwise, such as pattern, are errors.
func textsOf(schema json.RawMessage) (texts []string, free bool, err error) {
	for _, p := range propertiesOf(schema) {
		if slices.Contains([]string{"pattern", "format", "minLength", "maxLength", "not", "if", "then", "else"}, p.key) {
			return nil, false, fmt.Errorf("%s is not supported with calls of this model", p.key)
		}
	}
	var s valueSchema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, false, err
	}
	alternatives := slices.Concat(s.AnyOf, s.OneOf, s.AllOf)
	if len(s.AllOf) > 1 {
		return nil, false, fmt.Errorf("allOf: only one schema is supported")
	}
	for _, sub := range alternatives {
		t, f, err := textsOf(sub)
		if err != nil {
			return nil, false, err
		}
		texts, free = append(texts, t...), free || f
	}
	for _, v := range s.values() {
		switch v := v.(type) {
		case string:
			texts = append(texts, v)
		case nil:
			texts = append(texts, "null")
		}
	}
	if s.Const == nil && s.Enum == nil && alternatives == nil {
		text, _, _ := types(schema)
		texts, free = append(texts, "null"), free || text
	}
	return texts, free, nil
}
