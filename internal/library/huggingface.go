package library

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
			if m, ok := repositoryModel(repository, filepath.ToSlash(file)); ok && !seen[m.file] {
				seen[m.file] = true
				m.Path, m.Err = existing(p)
				m.old = i >= 0 && k > 0
				list = append(list, m)
			}
			return nil
		})
		errs = append(errs, err)
	}
	return list, errors.Join(errs...)
}

// repositoryModel returns the model in a file of a repository, without its path on this machine. ok is false if the file has
// none, or is not its first part.
func repositoryModel(repository, file string) (m Model, ok bool) {
	name, whole, ok := modelOf(file)
	name, whole = repository+":"+name, repository+":"+whole
	m = Model{Name: name, file: name, repository: repository}
	format, plain := formatOf(whole)
	if format != "" {
		m.short = append(m.short, repository+":"+format)
	}
	if plain != "" {
		m.plain = repository + ":" + plain
	}
	if whole != name {
		m.short = append(m.short, whole)
	}
	return m, ok
}

// Repository returns the folder of a repository in the cache of Hugging Face. It need not exist.
func (c Caches) Repository(repository string) string {
	return filepath.Join(c.HuggingFace[0], "models--"+strings.ReplaceAll(repository, "/", "--"))
}

// Select returns the file of a model in a repository, and then its other parts. files are all files of the repository, and
// name is a name of Find:
//
//	hf:ORGANIZATION/REPOSITORY[:FORMAT or FILE]
//
// The error lists the models if several have the name, or if none has it and wraps ErrNotFound.
func Select(name string, files []string) ([]string, error) {
	_, want, _ := strings.Cut(name, ":")
	repository, _, _ := strings.Cut(want, ":")
	var list []Model
	for _, file := range files {
		if m, ok := repositoryModel(repository, file); ok {
			m.Path = file
			list = append(list, m)
		}
	}
	list = nameAll(list, huggingFace)
	m, err := pick(list, name)
	if errors.Is(err, ErrNotFound) {
		if len(list) == 0 {
			return nil, fmt.Errorf("library: %s: %w: the repository has no GGUF model", name, err)
		}
		return nil, fmt.Errorf("library: %s: %w: the repository has %s", name, err, namesOf(list))
	}
	if err != nil {
		return nil, err
	}
	parts, err := partsOf(m.Path, files)
	return parts, named("library: "+name, err)
}

// partsOf returns the files of all parts of a model, in order. first is the first part.
func partsOf(first string, files []string) ([]string, error) {
	end := partEnd.FindStringSubmatch(strings.TrimSuffix(first, ".gguf"))
	if end == nil {
		return []string{first}, nil
	}
	count, err := strconv.Atoi(end[2])
	if err != nil {
		return nil, err
	}
	parts := []string{first}
	for i := 2; i <= count; i++ {
		part := fmt.Sprintf("%s-%05d-of-%s.gguf", strings.TrimSuffix(first, end[0]+".gguf"), i, end[2])
		if !slices.Contains(files, part) {
			return nil, fmt.Errorf("%s: the repository has no %s", first, part)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// format matches the formats of weights that end the names of files: Q4_K_M, IQ2_XXS, TQ1_0, F16, BF16 or MXFP4. In
// names of Unsloth, UD- before a format says that the tensors have several formats.
var format = regexp.MustCompile(`(?i)([-._])((?:UD-)?)((?:I?Q|TQ)[0-9][0-9A-Z_]*|B?F16|FP16|FP?32|MXFP4[A-Z_]*)$`)

// formatOf returns the format in the name of a model, and how else it may be called; "" if there is none. A format after an
// underscore has the second name alone.
func formatOf(name string) (best, other string) {
	m := format.FindStringSubmatch(name)
	if m == nil {
		return "", ""
	}
	separator, dynamic, plain := m[1], m[2], m[3]
	switch {
	case separator == "_":
		return "", plain
	case dynamic != "":
		return dynamic + plain, plain
	case strings.HasPrefix(strings.ToUpper(plain), "FP"):
		return plain, "F" + plain[2:]
	}
	return plain, ""
}
