package serve

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
)

const pagePath = "/{$}"

//go:embed page.html
var pageHTML []byte

// pagePolicy lets the page run its own script and style, and nothing else: no other source, no
// text parsed as HTML, no frame around it.
var pagePolicy = "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
	"; require-trusted-types-for 'script'; script-src " + pageHash("script") + "; style-src " + pageHash("style")

// pageHash returns the hash of the text of the page's only script or style, as a source of a
// Content-Security-Policy.
func pageHash(name string) string {
	_, rest, _ := bytes.Cut(pageHTML, []byte("<"+name+">"))
	text, _, _ := bytes.Cut(rest, []byte("</"+name+">"))
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// page serves the page. It has no secret, so it needs no API key; its requests do.
func (s *Server) page(x *exchange) error {
	h := x.w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	return x.write(http.StatusOK, "text/html; charset=utf-8", pageHTML)
}
