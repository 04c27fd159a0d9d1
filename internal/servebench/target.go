package servebench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Target is the endpoint of a server.
type Target struct {
	URL     string         // as ParseURL returns it
	Model   string         // "": the first model that the server lists
	Chat    bool           // use /v1/chat/completions instead of /v1/completions
	Key     string         // API key; "": none
	Extra   map[string]any // more fields of each request; nil as a value removes a field
	Timeout time.Duration  // of a request
	Client  *http.Client   // nil: one with a connection per request in flight
}

// ParseURL checks the base URL of a server. A path /v1 at its end is removed.
func ParseURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("%q, want a URL such as http://127.0.0.1:8080", text)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", fmt.Errorf("%s, want only a scheme, a host and a path", u.Redacted())
	}
	return strings.TrimSuffix(strings.TrimSuffix(u.String(), "/"), "/v1"), nil
}

func (t *Target) endpoint() string {
	if t.Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// body returns the body of a request. prompt is a string or a []int. Run has checked that
// Extra is valid JSON.
func (t *Target) body(prompt any, outputTokens int) []byte {
	fields := map[string]any{
		"model":          t.Model,
		"max_tokens":     outputTokens,
		"ignore_eos":     true,
		"stream":         true,
		"stream_options": map[string]bool{"include_usage": true},
	}
	if t.Chat {
		fields["messages"] = []map[string]any{{"role": "user", "content": prompt}}
	} else {
		fields["prompt"] = prompt
	}
	maps.Copy(fields, t.Extra)
	maps.DeleteFunc(fields, func(_ string, v any) bool { return v == nil })
	text, _ := json.Marshal(fields)
	return text
}

// request makes a request; a nil body makes a GET.
func (t *Target) request(ctx context.Context, path string, body []byte) (*http.Request, error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, t.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	// A server may close an idle connection while the next request is on its way, as llama.cpp's does
	// after some seconds. With this key the client sends that request again on another connection.
	// Without a value the header itself is not sent.
	r.Header["Idempotency-Key"] = nil
	if t.Key != "" {
		r.Header.Set("Authorization", "Bearer "+t.Key)
	}
	return r, nil
}

// maxAnswer is the largest body of an answer that is not a stream, in bytes.
const maxAnswer = 64 << 20

// Errors of call and count.
var (
	errStatus   = errors.New("status") // another than 200
	errNoTokens = errors.New("no tokens")
)

// call reads a JSON answer into v.
func (t *Target) call(ctx context.Context, path string, body []byte, v any) error {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	r, err := t.request(ctx, path, body)
	if err != nil {
		return err
	}
	resp, err := t.Client.Do(r)
	if err != nil {
		return err // it names the URL
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", r.URL, err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %w %d: %s", r.URL, errStatus, resp.StatusCode, messageOf(text))
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s: %w", r.URL, err)
	}
	return nil
}

// messageOf returns the message of an error body, or the start of another body.
func messageOf(body []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) == nil && e.Error.Message != "" {
		body = []byte(e.Error.Message)
	}
	return strings.ToValidUTF8(string(body[:min(len(body), 200)]), "")
}

// firstModel returns the first model that the server lists.
func (t *Target) firstModel(ctx context.Context) (string, error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := t.call(ctx, "/v1/models", nil, &list); err != nil {
		return "", err
	}
	if len(list.Data) == 0 || list.Data[0].ID == "" {
		return "", fmt.Errorf("%s/v1/models: it lists no model", t.URL)
	}
	return list.Data[0].ID, nil
}

// count returns the number of tokens of a text by /tokenize, with BOS if the endpoint adds
// it to prompts; chat templates have their own. The fields are "content" and "add_special"
// for llama.cpp, and "prompt" and "add_special_tokens" for lockstep and vLLM.
func (t *Target) count(ctx context.Context, text string) (int, error) {
	body, err := json.Marshal(map[string]any{
		"model": t.Model, "content": text, "prompt": text, "add_special": !t.Chat, "add_special_tokens": !t.Chat,
	})
	if err != nil {
		return 0, err
	}
	var answer struct {
		Tokens []json.RawMessage `json:"tokens"`
	}
	if err := t.call(ctx, "/tokenize", body, &answer); err != nil {
		return 0, err
	}
	if len(answer.Tokens) == 0 {
		return 0, fmt.Errorf("%s/tokenize: %w", t.URL, errNoTokens)
	}
	return len(answer.Tokens), nil
}
