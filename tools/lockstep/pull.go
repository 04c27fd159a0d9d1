package main

import (
	"errors"
	"os"

	"github.com/lockstep-go/lockstep/internal/hub"
)

type pullCmd struct {
	Name string `arg:"" help:"hf:ORGANIZATION/REPOSITORY, and :FORMAT or :FILE if the repository has several models."`
}

func (c *pullCmd) Help() string {
	return "The model goes into the cache of Hugging Face, where every flag and argument for a model finds it by the same name. " +
		"An interrupted download goes on where it ended. Standard output gets the path of the file, or of the first part. " +
		"HF_TOKEN has the access token of a gated or private repository, HF_ENDPOINT the address of another hub."
}

func (c *pullCmd) Run(e *env) error {
	cache, err := caches()
	if err != nil {
		return err
	}
	h, err := hub.FromEnvironment(os.Getenv, cache)
	if err != nil {
		return err
	}
	m, err := h.Find(e.ctx, c.Name)
	if errors.Is(err, hub.ErrName) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	p := e.progressBytes("download", m.Size())
	file, err := m.Download(e.ctx, hub.Progress{Had: p.skip, Came: p.add, Done: func(f hub.File) {
		if e.screen == nil {
			e.note("%s: %s", printable(f.Path), size(f.Size))
		}
	}})
	p.end()
	if err != nil {
		return err
	}
	return e.stdout("%s\n", file)
}
