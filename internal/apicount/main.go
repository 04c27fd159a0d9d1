// Command apicount prints how many names each public package of this module exports, and
// fails if the total is above a limit.
//
// It counts types, functions, methods of exported types, constants and variables. It
// leaves out fields, commands, internal packages, and the packages of exempt.
//
//	go run ./internal/apicount
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// limit is the largest allowed total.
const limit = 503

// exempt packages are listed and not part of the total: their size follows that of the
// PTX instruction set.
var exempt = []string{"driver/emu", "ptxgen/ptx"}

func main() {
	if err := run(os.DirFS("."), os.Stdout, limit); err != nil {
		fmt.Fprintln(os.Stderr, "apicount:", err)
		os.Exit(1)
	}
}

func run(root fs.FS, out io.Writer, limit int) error {
	names, err := exportedNames(root)
	if err != nil {
		return err
	}
	total := 0
	for _, pkg := range slices.Sorted(maps.Keys(names)) {
		note := ""
		if slices.Contains(exempt, pkg) {
			note = " (not in the total)"
		} else {
			total += len(names[pkg])
		}
		fmt.Fprintf(out, "%4d %s%s\n", len(names[pkg]), pkg, note)
	}
	fmt.Fprintf(out, "%4d exported names, at most %d\n", total, limit)
	if total > limit {
		return fmt.Errorf("%d exported names, at most %d: unexport a name or move it to an internal package", total, limit)
	}
	return nil
}

// set is a set of names; a method is Type.Method.
type set map[string]bool

// exportedNames returns the exported names of each package, by directory. A name that
// several platforms define counts once.
func exportedNames(root fs.FS) (map[string]set, error) {
	names := map[string]set{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := path.Base(name); d.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") || slices.Contains([]string{"bin", "examples", "internal", "testdata"}, base)) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if file.Name.Name == "main" {
			return nil
		}
		dir := path.Dir(name)
		if names[dir] == nil {
			names[dir] = set{}
		}
		for _, decl := range file.Decls {
			names[dir].add(decl)
		}
		return nil
	})
	return names, err
}

// add adds the exported names that a declaration declares.
func (s set) add(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			typ := receiver(d.Recv.List[0].Type)
			if !typ.IsExported() {
				return
			}
			name = typ.Name + "." + name
		}
		if d.Name.IsExported() {
			s[name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			var idents []*ast.Ident
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				idents = []*ast.Ident{spec.Name}
			case *ast.ValueSpec:
				idents = spec.Names
			}
			for _, id := range idents {
				if id.IsExported() {
					s[id.Name] = true
				}
			}
		}
	}
}

// receiver returns the name of a receiver's type.
func receiver(t ast.Expr) *ast.Ident {
	for {
		switch x := t.(type) {
		case *ast.Ident:
			return x
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		default:
			return ast.NewIdent("_")
		}
	}
}
