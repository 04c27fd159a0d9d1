// Package house holds the rules that keep the rooms of this module apart: which
// package may import which. They are checked by this package's tests against
// the sources themselves, every file of every platform.
package house

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go/parser"
	"go/token"
)

// Module is the path of this module.
const Module = "github.com/lockstep-go/lockstep"

// Graph maps each package of the module, by its path below the module ("." is
// the root), to what it imports.
type Graph map[string]Imports

// Imports are import paths as they are written.
type Imports struct {
	Code []string // of the package itself
	Test []string // of its _test.go files, inside or outside the package
}

// ReadGraph parses the import clauses of every Go file below root. Build
// constraints are ignored on purpose: a rule broken on one platform is broken.
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

// walk calls visit for every file that belongs to the module's sources.
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

// Check returns every breach of the rules, in a fixed order; none for a house in
// order.
func Check(g Graph) []string {
	var found []string
	for _, pkg := range sorted(g) {
		found = append(found, checkTable(pkg, g[pkg])...)
		found = append(found, checkEverywhere(pkg, g[pkg])...)
	}
	return append(found, checkNever(g)...)
}

// checkTable holds a package's own imports to its row of the table.
func checkTable(pkg string, imports Imports) []string {
	room, ok := roomOf(pkg)
	if !ok {
		return []string{pkg + ": has no row in the table of rooms"}
	}
	var found []string
	for _, imp := range imports.Code {
		if !isStd(imp) && !room.allows(imp) {
			found = append(found, fmt.Sprintf("%s: may not import %s", pkg, imp))
		}
	}
	return found
}

// checkEverywhere holds the rules that bind tests as well.
func checkEverywhere(pkg string, imports Imports) []string {
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

// checkNever follows imports through other packages: what must be kept apart may
// not meet by a detour either.
func checkNever(g Graph) []string {
	var found []string
	for _, pkg := range sorted(g) {
		for _, never := range nevers {
			if !below(pkg, never.from) {
				continue
			}
			if way := route(g, pkg, never.to); way != nil {
				found = append(found, fmt.Sprintf("%s: reaches %s (%s): %s", pkg, never.to, strings.Join(way, " → "), never.why))
			}
		}
	}
	return found
}

// route is a shortest chain of imports from pkg to a package at or below to; nil
// when there is none.
func route(g Graph, pkg, to string) []string {
	seen := map[string]bool{pkg: true}
	for queue := [][]string{{pkg}}; len(queue) > 0; queue = queue[1:] {
		way := queue[0]
		for _, imp := range g[way[len(way)-1]].Code {
			own, ours := local(imp)
			if !ours || seen[own] {
				continue
			}
			seen[own] = true
			next := append(slices.Clone(way), own)
			if below(own, to) {
				return next
			}
			queue = append(queue, next)
		}
	}
	return nil
}

// local is an import path below this module.
func local(imp string) (string, bool) {
	if imp == Module {
		return ".", true
	}
	return strings.CutPrefix(imp, Module+"/")
}

// below reports whether a path is root or lies under it.
func below(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

// isStd reports whether an import path is the standard library's: its first
// element is no host name. cgo's "C" is not.
func isStd(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".") && imp != "C"
}

func sorted(g Graph) []string {
	names := make([]string, 0, len(g))
	for pkg := range g {
		names = append(names, pkg)
	}
	slices.Sort(names)
	return names
}
