// Package library finds the models that other programs keep on this machine: Ollama, LM Studio and the cache of
// Hugging Face. It reads folders and downloads nothing.
package library

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Caches holds the folders of each program. A folder that does not exist has no models.
type Caches struct {
	Ollama      []string // with manifests and blobs
	LMStudio    []string // with PUBLISHER/REPOSITORY/FILE.gguf
	HuggingFace []string // with models--ORGANIZATION--REPOSITORY
}

// Model is a model in a cache.
type Model struct {
	Name string // for Find, such as ollama:llama3.2:latest
	Path string // of its file, or of the first part; "" if Err is set
	Err  error  // what is wrong with its entry in the cache; it names the file

	// Names without the source, of files that are not of Ollama.
	file       string   // the whole one: the file without .gguf
	short      []string // shorter names, in order of preference; one counts if no other model has it
	plain      string   // another name of the format, or ""; Find uses it if nothing else matches
	repository string   // it names the model if this is the only one in it
	old        bool     // not of the current commit of its repository
}

// ErrNotFound means that no cache has a model of a name.
var ErrNotFound = errors.New("no such model")

// Sources of models, as names begin.
const (
	ollama      = "ollama"
	lmStudio    = "lmstudio"
	huggingFace = "hf"
)

// FromEnvironment returns the folders that the programs use by default, by environment variables or by settings of LM Studio.
// home is the home folder of the user. The second folder of Ollama is that of its service on Linux.
func FromEnvironment(getenv func(string) string, home string) Caches {
	cache := cmp.Or(getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache"))
	hub := filepath.Join(cmp.Or(getenv("HF_HOME"), filepath.Join(cache, "huggingface")), "hub")
	hub = cmp.Or(getenv("HF_HUB_CACHE"), getenv("HUGGINGFACE_HUB_CACHE"), hub)
	if rest, ok := strings.CutPrefix(filepath.ToSlash(hub), "~/"); ok {
		hub = filepath.Join(home, rest)
	}
	c := Caches{
		Ollama:      []string{filepath.Join(home, ".ollama", "models"), "/usr/share/ollama/.ollama/models"},
		LMStudio:    lmStudioFolders(home),
		HuggingFace: []string{hub},
	}
	if dir := getenv("OLLAMA_MODELS"); dir != "" {
		c.Ollama = []string{dir}
	}
	return c
}

// of returns the folders of a source, and the function that reads one.
func (c Caches) of(source string) (dirs []string, find func(dir string) ([]Model, error)) {
	switch source {
	case ollama:
		return c.Ollama, findOllama
	case lmStudio:
		return c.LMStudio, findLMStudio
	}
	return c.HuggingFace, findHuggingFace
}

// IsName reports whether a text is a name of a model and no path. It begins with ollama:, lmstudio: or hf:.
func IsName(text string) bool {
	source, _, ok := strings.Cut(text, ":")
	return ok && slices.Contains([]string{ollama, lmStudio, huggingFace}, source)
}

// List returns the models of all caches, by source and name, and an error about folders that cannot be read. An entry
// that is broken hides no other.
func (c Caches) List() ([]Model, error) {
	var all []Model
	var errs []error
	for _, source := range []string{huggingFace, lmStudio, ollama} {
		list, err := c.list(source)
		for _, m := range list {
			m.Err = named("library", m.Err)
			all = append(all, m)
		}
		errs = append(errs, named("library", err))
	}
	return all, errors.Join(errs...)
}

// list returns the models of one source, by name. Of equal names, the first model without an error counts.
func (c Caches) list(source string) (list []Model, err error) {
	var errs []error
	dirs, find := c.of(source)
	for _, dir := range dirs {
		found, err := find(dir)
		list, errs = append(list, found...), append(errs, err)
	}
	slices.SortStableFunc(list, func(a, b Model) int {
		broken := func(m Model) int {
			if m.Err != nil {
				return 1
			}
			return 0
		}
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(broken(a), broken(b)))
	})
	list = slices.CompactFunc(list, func(a, b Model) bool { return a.Name == b.Name })
	return nameAll(list, source), errors.Join(errs...)
}

// nameAll gives each model of a source its shortest name, and sorts them by it.
func nameAll(list []Model, source string) []Model {
	shorten(list)
	for i := range list {
		list[i].Name = source + ":" + list[i].Name
	}
	slices.SortStableFunc(list, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// namesOf returns the names of models as a text.
func namesOf(list []Model) string {
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.Name
	}
	return strings.Join(names, ", ")
}

// shorten gives each model its shortest name that no other model has. Models of current commits choose first: a short name
// of an old model does not count for them.
func shorten(list []Model) {
	all, current := map[string]int{}, map[string]int{}
	for _, m := range list {
		for _, name := range append(slices.Clone(m.short), m.file) {
			all[strings.ToLower(name)]++
			if !m.old || name == m.file {
				current[strings.ToLower(name)]++
			}
		}
	}
	for i, m := range list {
		uses := current
		if m.old {
			uses = all
		}
		for _, name := range m.short {
			if uses[strings.ToLower(name)] == 1 {
				list[i].Name = name
				break
			}
		}
	}
}

// Find returns the path of the model of a name, as List gives it. These may be left out: the tag latest of Ollama, the
// format or file of the only model of a repository, the end .gguf of a file, and UD- of a format.
//
//	ollama:NAME[:TAG]    lmstudio:PUBLISHER/REPOSITORY[/FILE]    hf:ORGANIZATION/REPOSITORY[:FORMAT or FILE]
//
// The error wraps ErrNotFound if all folders were read and no model has the name.
func (c Caches) Find(name string) (string, error) {
	source, _, _ := strings.Cut(name, ":")
	list, errList := c.list(source)
	m, err := pick(list, name)
	switch {
	case !errors.Is(err, ErrNotFound):
		return m.Path, err
	case errList != nil:
		return "", fmt.Errorf("library: %s: folders cannot be read: %w", name, errList)
	}
	dirs, _ := c.of(source)
	return "", fmt.Errorf("library: %s: %w in %s", name, err, strings.Join(dirs, ", "))
}

// pick returns the model of a name for Find from a list of one source. The error is ErrNotFound if there is none, or else
// names the model.
func pick(list []Model, name string) (Model, error) {
	source, want, _ := strings.Cut(name, ":")
	if source == ollama {
		want = fullOllamaName(want)
	} else {
		want = strings.TrimSuffix(want, ".gguf")
	}
	full := source + ":" + want
	for _, matches := range []func(m Model) bool{
		func(m Model) bool { return m.Name == full || m.file == want },
		func(m Model) bool { return strings.EqualFold(m.Name, full) || strings.EqualFold(m.file, want) },
		func(m Model) bool {
			return slices.ContainsFunc(append(slices.Clone(m.short), m.repository), func(s string) bool { return s != "" && strings.EqualFold(s, want) })
		},
		func(m Model) bool { return m.plain != "" && strings.EqualFold(m.plain, want) },
	} {
		var found, current []Model
		for _, m := range list {
			if matches(m) {
				found = append(found, m)
				if !m.old {
					current = append(current, m)
				}
			}
		}
		if len(current) > 0 {
			found = current
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], named("library: "+name, found[0].Err)
		}
		return Model{}, fmt.Errorf("library: %s: several models have this name: %s", name, namesOf(found))
	}
	return Model{}, ErrNotFound
}

// partEnd matches the end of the name of a part of a split model.
var partEnd = regexp.MustCompile(`-([0-9]{5})-of-([0-9]{5})$`)

// modelOf returns the names of the model in a file: without .gguf, and also without the number of the first part. ok is
// false if the file is no GGUF file, a later part, or what is beside a model: a projector for images or an importance
// matrix.
func modelOf(file string) (name, whole string, ok bool) {
	name, ok = strings.CutSuffix(file, ".gguf")
	base := strings.ToLower(path.Base(name))
	ok = ok && !strings.Contains(base, "mmproj") && !strings.HasPrefix(base, "imatrix") && !strings.HasSuffix(base, "imatrix")
	if part := partEnd.FindStringSubmatch(name); part != nil {
		return name, strings.TrimSuffix(name, part[0]), ok && part[1] == "00001"
	}
	return name, name, ok
}

// readable returns nil instead of an error if a folder does not exist.
func readable(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// named adds a prefix to an error.
func named(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", prefix, err)
}
