package library

import (
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// lmStudioFolders returns the folders that may hold LM Studio's models. home is the user's home folder. LM Studio's own folder is a
// usual one below home, or the one that a pointer file in home names. Its settings may name a folder for models.
func lmStudioFolders(home string) (list []string) {
	homes := []string{filepath.Join(home, ".lmstudio"), filepath.Join(home, ".cache", "lm-studio")}
	if pointer, err := os.ReadFile(filepath.Join(home, ".lmstudio-home-pointer")); err == nil {
		first, _, _ := strings.Cut(string(pointer), "\n")
		if dir := strings.TrimSpace(first); dir != "" {
			homes = append([]string{dir}, homes...)
		}
	}
	for _, dir := range homes {
		var settings struct {
			DownloadsFolder string `json:"downloadsFolder"`
		}
		if text, err := os.ReadFile(filepath.Join(dir, "settings.json")); err == nil {
			_ = json.Unmarshal(text, &settings) // LM Studio, too, ignores settings that it cannot parse
		}
		for _, folder := range []string{settings.DownloadsFolder, filepath.Join(dir, "models")} {
			if folder != "" && !slices.Contains(list, folder) {
				list = append(list, folder)
			}
		}
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
