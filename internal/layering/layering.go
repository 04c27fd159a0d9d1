// Package layering states which package of this module may import which, and checks it.
//
// The table is in rules.go. The tests of this package check the import clauses of every
// Go file of the module, for all platforms.
package layering

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Module is the import path of this module.
const Module = "github.com/lockstep-go/lockstep"

// Graph maps each package to its imports. The key is the package's directory relative to
// the module root; the root is ".".
type Graph map[string]Imports

// Imports holds import paths as the source files spell them.
type Imports struct {
	Code []string // of files that are not tests
	Test []string // of _test.go files, in the package or in package x_test
}

// ReadGraph parses the import clauses of every Go file below root. It ignores build
// constraints: a rule that one platform breaks is broken.
func ReadGraph(root fs.FS) (Graph, error) {
	g := Graph{}
	err := walk(root, func(name string) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		imports := g[path.Dir(name)]
		list := &imports.Code
		if strings.HasSuffix(name, "_test.go") {
			list = &imports.Test
		}
		for _, spec := range file.Imports {
			p := strings.Trim(spec.Path.Value, "`\"")
			if !slices.Contains(*list, p) {
				*list = append(*list, p)
			}
		}
		g[path.Dir(name)] = imports
		return nil
	})
	return g, err
}

// walk calls visit for every file of the module, including those of .ci.
func walk(root fs.FS, visit func(name string) error) error {
	return fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		switch {
		case !d.IsDir():
			return visit(name)
		case name == ".", base == ".ci":
			return nil
		case strings.HasPrefix(base, "."), strings.HasPrefix(base, "_"), base == "testdata", base == "bin", base == "dist":
			return fs.SkipDir
		}
		return nil
	})
}

// Check returns every violation of the rules, sorted by package.
func Check(g Graph) []string {
	var found []string
	for _, pkg := range packages(g) {
		found = append(found, checkTable(pkg, g[pkg])...)
		found = append(found, checkAllFiles(pkg, g[pkg])...)
		found = append(found, checkForbidden(g, pkg)...)
	}
	return found
}

// checkTable compares a package's imports, except those of its tests, with its row.
func checkTable(pkg string, imports Imports) []string {
	r, ok := ruleFor(pkg)
	if !ok {
		return []string{pkg + ": has no row in the import table"}
	}
	var found []string
	for _, imp := range imports.Code {
		if !isStd(imp) && !r.allows(imp) {
			found = append(found, fmt.Sprintf("%s: may not import %s", pkg, imp))
		}
	}
	return found
}

// checkAllFiles checks the rules that apply to tests too.
func checkAllFiles(pkg string, imports Imports) []string {
	var found []string
	for _, imp := range slices.Concat(imports.Code, imports.Test) {
		own, ours := local(imp)
		switch {
		case ours && below(own, "tools") && own != pkg:
			found = append(found, fmt.Sprintf("%s: imports the command %s", pkg, own))
		case below(imp, purego) && pkg != "driver/cuda":
			found = append(found, fmt.Sprintf("%s: imports purego, which only driver/cuda may", pkg))
		case imp == "C":
			found = append(found, fmt.Sprintf("%s: uses cgo", pkg))
		}
	}
	return found
}

// checkForbidden reports forbidden packages that pkg imports, directly or through others.
func checkForbidden(g Graph, pkg string) []string {
	var found []string
	for _, f := range forbidden {
		if !below(pkg, f.from) {
			continue
		}
		if chain := importChain(g, pkg, f.to); chain != nil {
			found = append(found, fmt.Sprintf("%s: reaches %s (%s): %s", pkg, f.to, strings.Join(chain, " → "), f.why))
		}
	}
	return found
}

// importChain returns a shortest chain of imports from pkg to a package at or below to,
// or nil.
func importChain(g Graph, pkg, to string) []string {
	seen := map[string]bool{pkg: true}
	for queue := [][]string{{pkg}}; len(queue) > 0; queue = queue[1:] {
		chain := queue[0]
		for _, imp := range g[chain[len(chain)-1]].Code {
			own, ours := local(imp)
			if !ours || seen[own] {
				continue
			}
			seen[own] = true
			next := append(slices.Clone(chain), own)
			if below(own, to) {
				return next
			}
			queue = append(queue, next)
		}
	}
	return nil
}

// local returns an import path relative to this module, and whether it is in this module.
func local(imp string) (string, bool) {
	if imp == Module {
		return ".", true
	}
	return strings.CutPrefix(imp, Module+"/")
}

// below reports whether p is root or lies under it.
func below(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

// matches reports whether pkg is pattern or, if the pattern ends in /..., at or below it.
func matches(pattern, pkg string) bool {
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return below(pkg, root)
	}
	return pkg == pattern
}

// isStd reports whether imp is in the standard library: its first element has no dot.
// "C" is not.
func isStd(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".") && imp != "C"
}

func packages(g Graph) []string { return slices.Sorted(maps.Keys(g)) }
