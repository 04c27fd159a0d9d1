package library

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// lmStudioFolders returns the folders of models: of the home folder that a pointer file names, or else of the default ones. The
// settings there may name another folder. A user's home folder is home.
func lmStudioFolders(home string) (list []string) {
	homes := []string{filepath.Join(home, ".lmstudio"), filepath.Join(home, ".cache", "lm-studio")}
	if pointer, err := os.ReadFile(filepath.Join(home, ".lmstudio-home-pointer")); err == nil {
		if dir, _, _ := strings.Cut(string(pointer), "\n"); strings.TrimSpace(dir) != "" {
			homes = []string{strings.TrimSpace(dir)}
		}
	}
	for _, dir := range homes {
		var settings struct {
			DownloadsFolder string `json:"downloadsFolder"`
		}
		if text, err := os.ReadFile(filepath.Join(dir, "settings.json")); err == nil {
			_ = json.Unmarshal(text, &settings) // LM Studio replaces settings that it cannot read by default ones
		}
		list = append(list, cmp.Or(settings.DownloadsFolder, filepath.Join(dir, "models")))
	}
	return list
}

// findLMStudio finds the GGUF files PUBLISHER/REPOSITORY/FILE.gguf of a folder. Links to folders and files are
// followed.
func findLMStudio(dir string) (list []Model, err error) {
	files, err := filesBelow(dir, 2)
	for _, file := range files {
		if name, whole, ok := modelOf(file); ok {
			m := fileModel(name, filepath.Join(dir, filepath.FromSlash(file)))
			m.repository = path.Dir(name)
			if whole != name {
				m.short = []string{whole}
			}
			list = append(list, m)
		}
	}
	return list, err
}

// filesBelow returns the files that are depth folders below dir, as paths relative to dir with slashes. Links to folders
// are followed.
func filesBelow(dir string, depth int) (list []string, err error) {
	entries, err := names(dir)
	if depth == 0 {
		return entries, err
	}
	errs := []error{err}
	for _, entry := range entries {
		files, err := filesBelow(filepath.Join(dir, entry), depth-1)
		errs = append(errs, err)
		for _, file := range files {
			list = append(list, entry+"/"+file)
		}
	}
	return list, errors.Join(errs...)
}

// names returns the names in a folder; none if it is no folder or does not exist.
func names(dir string) (list []string, err error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, readable(err)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list, readable(err)
}

// fileModel returns the model in a file.
func fileModel(name, path string) Model {
	m := Model{Name: name, file: name}
	m.Path, m.Err = existing(path)
	return m
}

// existing returns the path of a file, or an error if it is a link that leads nowhere.
func existing(path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	return path, nil
}
