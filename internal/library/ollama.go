package library

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Parts of a name that Ollama does not show.
const (
	ollamaHost      = "registry.ollama.ai"
	ollamaNamespace = "library"
	ollamaTag       = "latest"
)

// findOllama reads the manifests of a folder of Ollama. A manifest is a JSON file
//
//	manifests/HOST/NAMESPACE/MODEL/TAG
//
// that lists layers by their digests. A layer is a file in blobs, and one of them is the GGUF file.
func findOllama(dir string) (list []Model, err error) {
	manifests := filepath.Join(dir, "manifests")
	files, err := filesBelow(manifests, 3)
	for _, file := range files {
		parts := strings.Split(file, "/")
		if strings.HasPrefix(parts[3], ".") {
			continue
		}
		m := Model{Name: ollamaName(parts[0], parts[1], parts[2], parts[3])}
		m.Path, m.Err = ollamaModel(dir, filepath.Join(manifests, filepath.FromSlash(file)))
		list = append(list, m)
	}
	return list, err
}

// ollamaName is the name that Ollama shows.
func ollamaName(host, namespace, model, tag string) string {
	name := model + ":" + tag
	switch {
	case host != ollamaHost:
		return host + "/" + namespace + "/" + name
	case namespace != ollamaNamespace:
		return namespace + "/" + name
	}
	return name
}

// fullOllamaName adds the default tag, and removes the parts that ollamaName does not have.
func fullOllamaName(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, ollamaHost+"/"), ollamaNamespace+"/")
	if strings.Contains(name[strings.LastIndex(name, "/")+1:], ":") {
		return name
	}
	return name + ":" + ollamaTag
}

// ollamaManifest lists the layers of a model.
type ollamaManifest struct {
	Layers []struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int64  `json:"size"`
	} `json:"layers"`
}

// Media types of layers. Others, such as templates, do not change what a model computes of tokens.
const (
	ollamaModelLayer   = "application/vnd.ollama.image.model"
	ollamaAdapterLayer = "application/vnd.ollama.image.adapter"
)

// maxManifest is the size of the largest manifest that is read, in bytes.
const maxManifest = 1 << 20

var digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// ollamaModel returns the path of the GGUF file of a manifest.
func ollamaModel(dir, path string) (string, error) {
	m, err := readManifest(path)
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err // the path is named below
		}
		return "", fmt.Errorf("%s: %w", path, err)
	}
	blob := ""
	for _, l := range m.Layers {
		switch {
		case l.MediaType == ollamaAdapterLayer:
			return "", fmt.Errorf("%s: the model has an adapter, which is not supported", path)
		case l.MediaType != ollamaModelLayer:
			continue
		case blob != "":
			return "", fmt.Errorf("%s: the manifest has several layers with a model", path)
		case !digest.MatchString(l.Digest):
			return "", fmt.Errorf("%s: the digest of the model is %.80q, want sha256: and 64 digits", path, l.Digest)
		}
		blob = filepath.Join(dir, "blobs", strings.Replace(l.Digest, ":", "-", 1))
		info, err := os.Stat(blob)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if info.Size() != l.Size {
			return "", fmt.Errorf("%s: %s has %d bytes, want %d", path, blob, info.Size(), l.Size)
		}
	}
	if blob == "" {
		return "", fmt.Errorf("%s: the manifest has no layer with a model in one GGUF file", path)
	}
	return blob, nil
}

func readManifest(path string) (m ollamaManifest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("the manifest has more than %d bytes", maxManifest)
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}
