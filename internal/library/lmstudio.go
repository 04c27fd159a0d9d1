package library

import (
	"errors"
	"os"
	"path/filepath"
)

// findLMStudio finds the GGUF files PUBLISHER/REPOSITORY/FILE.gguf of a folder. Links to folders and files are
// followed.
func findLMStudio(dir string) (list []Model, err error) {
	publishers, err := names(dir)
	problems := []error{err}
	for _, publisher := range publishers {
		repositories, err := names(filepath.Join(dir, publisher))
		problems = append(problems, err)
		for _, repository := range repositories {
			files, err := names(filepath.Join(dir, publisher, repository))
			problems = append(problems, err)
			for _, file := range files {
				if name, ok := modelOf(file); ok {
					list = append(list, fileModel(publisher+"/"+repository+"/"+name, filepath.Join(dir, publisher, repository, file)))
				}
			}
		}
	}
	return list, errors.Join(problems...)
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

// fileModel returns the model in a file. A link may lead nowhere.
func fileModel(name, path string) Model {
	if _, err := os.Stat(path); err != nil {
		return Model{Name: name, Err: err}
	}
	return Model{Name: name, Path: path}
}
