package library

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// findHuggingFace finds the GGUF files of a cache, which has a folder for each repository:
//
//	models--ORGANIZATION--REPOSITORY/refs/main                     the current commit
//	models--ORGANIZATION--REPOSITORY/snapshots/COMMIT/…/FILE.gguf  links to blobs
//
// If several commits have a file, that of the current one counts.
func findHuggingFace(dir string) (list []Model, err error) {
	entries, err := names(dir)
	errs := []error{err}
	for _, entry := range entries {
		if repository, ok := strings.CutPrefix(entry, "models--"); ok {
			found, err := findRepository(strings.Replace(repository, "--", "/", 1), filepath.Join(dir, entry))
			list, errs = append(list, found...), append(errs, err)
		}
	}
	return list, errors.Join(errs...)
}

// findRepository finds the models of all snapshots of a repository. A model is named by its format, or by its file if it
// has none or shares it with another file.
func findRepository(repository, dir string) (list []Model, err error) {
	snapshots := filepath.Join(dir, "snapshots")
	commits, err := names(snapshots)
	current, errMain := os.ReadFile(filepath.Join(dir, "refs", "main"))
	i := slices.Index(commits, strings.TrimSpace(string(current)))
	if i > 0 {
		commits[0], commits[i] = commits[i], commits[0]
	}
	errs := []error{err, readable(errMain)}
	seen := map[string]bool{}
	for k, commit := range commits {
		root := filepath.Join(snapshots, commit)
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				errs = append(errs, readable(err))
				return nil
			}
			if d.IsDir() {
				return nil
			}
			file, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			if name, whole, ok := modelOf(filepath.ToSlash(file)); ok && !seen[name] {
				seen[name] = true
				m := fileModel(repository+":"+name, p)
				m.repository, m.old = repository, i >= 0 && k > 0
				if format := formatOf(whole); format != "" {
					m.short = append(m.short, repository+":"+format)
				}
				if whole != name {
					m.short = append(m.short, repository+":"+whole)
				}
				list = append(list, m)
			}
			return nil
		})
		errs = append(errs, err)
	}
	return list, errors.Join(errs...)
}

// format matches the formats of weights that end the names of files: Q4_K_M, IQ2_XXS, TQ1_0, F16, BF16 or MXFP4.
var format = regexp.MustCompile(`(?i)[-.]((?:I?Q|TQ)[0-9][0-9A-Z_]*|B?F(?:16|32)|MXFP4[A-Z_]*)$`)

// formatOf returns the format in the name of a model, or "".
func formatOf(name string) string {
	if m := format.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}
