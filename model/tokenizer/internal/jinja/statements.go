package jinja

import (
	"github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// statements are the statements that a template may use: none that reads
// another template.
var statements = statementSet{
	"if":         builtin("if"),
	"for":        builtin("for"),
	"macro":      builtin("macro"),
	"break":      builtin("break"),
	"continue":   builtin("continue"),
	"set":        parseSet,
	"generation": parseGeneration,
}

type statementSet map[string]parser.ControlStructureParser

// Get is what the parser asks for a statement's parser.
func (s statementSet) Get(name string) (parser.ControlStructureParser, bool) {
	p, ok := s[name]
	return p, ok
}

// builtin takes the parser of one of gonja's own statements.
func builtin(name string) parser.ControlStructureParser {
	p, ok := controlStructures.All.Get(name)
	if !ok {
		panic("jinja: gonja has no statement " + name)
	}
	return p
}

// set is {% set target = value %} or {% set target %}body{% endset %}.
type set struct {
	at     *tokens.Token
	target nodes.Expression // a name or an attribute
	value  nodes.Expression // nil: body
	body   *nodes.Wrapper
}

func (s *set) Position() *tokens.Token { return s.at }
func (s *set) String() string          { return "set" }

func parseSet(p, args *parser.Parser) (nodes.ControlStructure, error) {
	s := &set{at: args.Current()}
	var err error
	if s.target, err = args.ParseVariableOrLiteral(); err != nil {
		return nil, err
	}
	switch s.target.(type) {
	case *nodes.Name, *nodes.GetAttribute:
	default:
		return nil, args.Error("set needs a name or an attribute", s.at)
	}
	if args.Match(tokens.Assign) != nil {
		if s.value, err = args.ParseExpression(); err != nil {
			return nil, err
		}
	} else if s.body, err = body(p, "endset"); err != nil {
		return nil, err
	}
	if !args.End() {
		return nil, args.Error("unexpected token in set", args.Current())
	}
	return s, nil
}

// generation is {% generation %}body{% endgeneration %}, by which templates mark
// what the model is trained to write. It renders its body.
type generation struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

func (g *generation) Position() *tokens.Token { return g.at }
func (g *generation) String() string          { return "generation" }

func parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	g := &generation{at: args.Current()}
	if !args.End() {
		return nil, args.Error("generation takes no arguments", args.Current())
	}
	var err error
	g.body, err = body(p, "endgeneration")
	return g, err
}

// body parses up to the statement end, which takes no arguments.
func body(p *parser.Parser, end string) (*nodes.Wrapper, error) {
	wrapper, args, err := p.WrapUntil(end)
	if err != nil {
		return nil, err
	}
	if !args.End() {
		return nil, args.Error(end+" takes no arguments", args.Current())
	}
	return wrapper, nil
}
