package answer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/generate/constraint"
)

// Request says what an answer may be. The zero Request permits any text.
type Request struct {
	Tools    []Tool
	Required bool   // the answer is calls of tools
	Name     string // if not "", the answer is a call of this tool
	Single   bool   // at most one call

	Content *constraint.Structure // if not nil, the answer without its reasoning; other fields are ignored then
}

// Structure returns the structure of the answers to a prompt that a request permits, and whether
// that restricts them. Reasoning is never restricted. Errors name a field of
// OpenAI's API, as in "answer: tools[0].function.parameters: why"; so do those of
// Vocabulary.Compile.
func (s Style) Structure(prompt string, r Request) (c constraint.Structure, restricted bool, err error) {
	var body constraint.Structure
	strict := slices.ContainsFunc(r.Tools, func(t Tool) bool { return t.Strict })
	switch {
	case r.Content != nil:
		body = *r.Content
	case r.Required || r.Name != "":
		body, err = s.calls(r, true)
	case strict || r.Single && len(r.Tools) > 0:
		body, err = s.calls(r, false)
	default:
		return constraint.Structure{}, false, nil
	}
	if err == nil {
		body, err = s.afterReasoning(prompt, body, r.Content != nil)
	}
	if err != nil {
		return constraint.Structure{}, false, fmt.Errorf("answer: %w", err)
	}
	return body, true, nil
}

// Short names for the parts of a structure.
type structure = constraint.Structure

func sequence(parts ...structure) structure { return structure{Sequence: parts} }
func optional(part structure) structure     { return structure{AnyOf: []structure{{}, part}} }
func text(s string) structure               { return structure{Text: s} }
func marker(s string) structure             { return structure{Marker: s} }
func matching(expr string) structure        { return structure{Regexp: expr} }

// afterReasoning returns the structure of an answer that may reason before its body. content
// reports whether the body is content without markers.
func (s Style) afterReasoning(prompt string, body structure, content bool) (structure, error) {
	if s.format == harmony {
		return harmonyAnswer(prompt, body, content)
	}
	rest := sequence(structure{Until: []string{s.thinkClose}}, matching(`[ \n]{0,3}`))
	open := marker(s.thinkOpen)
	if s.thinkOpen == thoughtOpen {
		open = sequence(marker(channelOpen), text(strings.TrimPrefix(thoughtOpen, channelOpen)))
	}
	switch s.reasons(prompt) {
	case reasoningBegun:
		return sequence(rest, body), nil
	case mayReason:
		return sequence(optional(sequence(matching(`\n?`), open, rest)), body), nil
	}
	return body, nil
}

// calls returns the structure of an answer that calls tools. If it need not, it may have
// other text.
func (s Style) calls(r Request, required bool) (structure, error) {
	var tools []structure // the part of a call that depends on the tool
	var shared []string   // tools of Gemma 4 that share a structure of any arguments
	for i, t := range r.Tools {
		if r.Name != "" && t.Name != r.Name {
			continue
		}
		if s.format == gemma && !required && !t.Strict {
			shared = append(shared, t.Name)
			continue
		}
		call, err := s.call(t, fmt.Sprintf("tools[%d].function.parameters", i), required || t.Strict)
		if err != nil {
			return structure{}, err
		}
		tools = append(tools, call)
	}
	if len(shared) > 0 {
		tools = append(tools, gemmaCall(shared, gemmaAnyObject(gemmaAny(anyDepth))))
	}
	if len(tools) == 0 {
		return structure{}, fmt.Errorf("tools: there is none with the name %q", r.Name)
	}
	single := r.Single || r.Name != ""
	open, separator := openers[s.format], matching(`\n?`)
	call := structure{AnyOf: tools}
	more := func(separator structure) structure { // further calls
		if single {
			return structure{}
		}
		next := sequence(separator, call)
		return structure{Repeat: &next}
	}
	var rest structure // from behind the opener to the end of the call
	switch s.format {
	case hermes, qwenXML:
		rest = sequence(matching(`\n?`), call, matching(`\n?`), marker(closers[s.format]))
	case mistralNamed, gemma:
		rest = call
	case mistralList:
		rest = sequence(matching(` ?\[`), call, more(matching(`, ?`)), text("]"))
	case harmony: // a call ends the answer
		if required {
			return call, nil
		}
		last := sequence(harmonyHead("commentary|final"), structure{Without: []string{messageEnd}})
		return sequence(harmonyMessages("analysis|commentary|final"), structure{AnyOf: []structure{last, call}}), nil
	case llama3, llama4, python:
		var list structure
		switch s.format {
		case llama3:
			list = sequence(call, more(matching(`; ?|\n`)))
		case llama4:
			list = sequence(call, more(separator))
		case python:
			list = sequence(text("["), call, more(matching(`, ?`)), text("]"))
		}
		all := sequence(optional(marker(open)), list, optional(marker(closers[s.format])))
		if required {
			return all, nil
		}
		free := structure{Without: []string{open}, NotFirst: append(s.notFirst(), s.format.plain())}
		return structure{AnyOf: []structure{free, sequence(matching(`\s{0,2}`), all)}}, nil
	}
	if required {
		first, next := sequence(marker(open), rest), sequence(separator, marker(open), rest)
		if single || s.format == mistralList {
			return first, nil
		}
		return sequence(first, structure{Repeat: &next}), nil
	}
	free := structure{Without: []string{open}, NotFirst: s.notFirst()}
	next := sequence(structure{Until: []string{open}, NotFirst: s.notFirst()}, rest)
	if single {
		return structure{AnyOf: []structure{free, next}}, nil
	}
	return sequence(structure{Repeat: &next}, free), nil
}

// notFirst returns what free text cannot begin with, because it would be reasoning.
func (s Style) notFirst() []string {
	if s.thinkOpen == "" {
		return nil
	}
	return []string{s.thinkOpen}
}

// call returns the part of a call that depends on the tool: its name and arguments. If strict
// is false, the arguments are any object.
func (s Style) call(t Tool, field string, strict bool) (structure, error) {
	parameters := json.RawMessage(`{"type":"object"}`)
	if strict {
		var err error
		if parameters, err = t.schema(); err != nil {
			return structure{}, fmt.Errorf("%s: %w", field, err)
		}
	}
	arguments := structure{Schema: parameters, Name: field}
	switch s.format {
	case mistralNamed:
		id := sequence(marker("[CALL_ID]"), matching(`[a-zA-Z0-9]{9}`))
		return sequence(text(t.Name), optional(id), marker("[ARGS]"), arguments), nil
	case qwenXML:
		return t.xml(field, strict)
	case python:
		return t.python(field, strict)
	case gemma:
		arguments, err := t.gemma(field)
		return gemmaCall([]string{t.Name}, arguments), err
	case harmony:
		return harmonyCall(t.Name, arguments), nil
	}
	key := "arguments"
	if s.format == llama3 || s.format == llama4 {
		key = "parameters"
	}
	head := fmt.Sprintf(`\{ ?"name": ?%s, ?"%s":`, regexp.QuoteMeta(string(quote(t.Name))), key)
	return sequence(matching(head), arguments, matching(` ?\}`)), nil
}

// wholeObject are the keywords of JSON Schema about an object as a whole. Parameters that are
// written one by one cannot be held to them.
var wholeObject = []string{
	"$ref", "anyOf", "oneOf", "allOf", "enum", "const", "not", "if", "then", "else", "patternProperties", "propertyNames", "minProperties",
	"maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties",
}

// xml returns the structure of a call in the style of Qwen3-Coder from behind the opener. field
// names the schema in errors. If strict is false, a call has any parameters.
func (t Tool) xml(field string, strict bool) (structure, error) {
	parts := []structure{text(functionOpen + t.Name + ">\n")}
	if !strict {
		parameter := sequence(text(parameterOpen), matching(`[^\s<>]{1,64}`), text(">\n"), structure{Until: []string{parameterClose}}, text("\n"))
		parts = append(parts, structure{Repeat: &parameter}, text(functionClose))
		return sequence(parts...), nil
	}
	o, properties, err := t.parameters(field, space+"<>")
	if err != nil {
		return structure{}, err
	}
	for _, p := range properties {
		value, err := o.parameter(p.value, field)
		if err != nil {
			return structure{}, fmt.Errorf("%s: #/properties/%s: %w", field, p.key, err)
		}
		part := sequence(text(parameterOpen+p.key+">\n"), value)
		if !slices.Contains(o.Required, p.key) {
			part = optional(part)
		}
		parts = append(parts, part)
	}
	return sequence(append(parts, text(functionClose))...), nil
}

// parameters returns the parameters of a tool whose calls write them one by one. What cannot be
// held so is an error, and so is a name with one of the characters of not.
func (t Tool) parameters(field, not string) (o objectSchema, properties []property, err error) {
	fail := func(at, why string) (objectSchema, []property, error) {
		return objectSchema{}, nil, fmt.Errorf("%s: #%s: %s", field, at, why)
	}
	if _, err := t.schema(); err != nil {
		return objectSchema{}, nil, fmt.Errorf("%s: %w", field, err)
	}
	for _, p := range propertiesOf(t.Parameters) {
		if slices.Contains(wholeObject, p.key) {
			return fail("/"+p.key, "not supported with calls of this model")
		}
	}
	o = t.object()
	properties = propertiesOf(o.Properties)
	for _, p := range properties {
		if p.key == "" || len(p.key) > maxName || strings.ContainsAny(p.key, not) {
			return fail("/properties/"+p.key, "calls of this model cannot have this name")
		}
	}
	for _, name := range o.Required {
		if !slices.ContainsFunc(properties, func(p property) bool { return p.key == name }) {
			return fail("/required", fmt.Sprintf("%q is not in properties", name))
		}
	}
	if extra := string(o.AdditionalProperties); extra != "" && extra != "false" {
		return fail("/additionalProperties", "only false is supported with calls of this model")
	}
	return o, properties, nil
}

// inOrder returns the structure of members with separators between them. Those that are not
// required may be left out.
func inOrder(members []structure, separator structure, required func(i int) bool) structure {
	first := 0 // that is required
	for first < len(members) && !required(first) {
		first++
	}
	if first == len(members) {
		return optional(someOf(members, separator))
	}
	list := []structure{members[first]}
	if first > 0 {
		list = []structure{optional(sequence(someOf(members[:first], separator), separator)), members[first]}
	}
	for i := first + 1; i < len(members); i++ {
		next := sequence(separator, members[i])
		if !required(i) {
			next = optional(next)
		}
		list = append(list, next)
	}
	return sequence(list...)
}

// someOf returns the structure of one or more of the members in their order. Its halves keep its
// size at n log n.
func someOf(members []structure, separator structure) structure {
	if len(members) < 2 {
		return sequence(members...)
	}
	half := len(members) / 2
	list := []structure{someOf(members[:half], separator)}
	for _, m := range members[half:] {
		list = append(list, optional(sequence(separator, m)))
	}
	return structure{AnyOf: []structure{sequence(list...), someOf(members[half:], separator)}}
}

// parameter returns the structure of a value and what follows it.
func (o *objectSchema) parameter(schema json.RawMessage, field string) (structure, error) {
	end := text("\n" + parameterClose + "\n")
	if kindOf(schema) == jsonValue {
		return sequence(structure{Schema: o.document(schema), Name: field}, end), nil
	}
	texts, free, err := textsOf(schema)
	if err != nil {
		return structure{}, err
	}
	if free {
		return sequence(structure{Until: []string{parameterClose}}, text("\n")), nil
	}
	var choice structure
	for _, t := range texts {
		choice.AnyOf = append(choice.AnyOf, text(t))
	}
	return sequence(choice, end), nil
}
