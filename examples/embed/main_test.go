package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/lockstep-go/lockstep/model"
)

// What a program takes that has a model in it fits on a slip of paper.
func TestMainIsShort(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "main.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	const most = 15
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "main" {
			if n := files.Position(f.Body.Rbrace).Line - files.Position(f.Body.Lbrace).Line - 1; n > most {
				t.Errorf("main has %d lines, more than %d", n, most)
			}
			return
		}
	}
	t.Error("there is no function main")
}

// With a GPU or without, there is an engine or the reason why there is none.
func TestOnGPU(t *testing.T) {
	m := must(model.Open("../../golden/model/lockstep-tiny.gguf"))
	defer m.Close()
	engine, err := onGPU(m)
	if (engine == nil) != (err != nil) {
		t.Errorf("engine %v with error %v", engine, err)
	}
	if engine != nil {
		engine.Close()
	}
	t.Logf("error %v", err)
}
