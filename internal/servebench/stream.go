package servebench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// Kinds of errors in Record.Error. A status other than 200 is "status" and its number.
const (
	Connection  = "connection"       // no answer: refused, reset, no such host
	TimedOut    = "timeout"          // no end within Target.Timeout
	CutStream   = "cut stream"       // the stream ended before [DONE]
	Malformed   = "malformed stream" // not the event stream of the API
	ServerError = "error in stream"  // an error object after status 200
	Empty       = "empty answer"     // a whole stream without tokens
)

// failure is an error of a request, with its kind.
type failure struct {
	kind string
	err  error
}

func (f *failure) Error() string { return f.kind + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(kind, format string, args ...any) error {
	return &failure{kind, fmt.Errorf(format, args...)}
}

var errTimeout = errors.New("timeout")

// answer is what one request measured. Times are those at which the client read the data.
type answer struct {
	sent, first, last, end time.Time // first and last output; zero if there was none
	gaps                   []time.Duration
	chunks                 int // events with output
	usage                  *usage
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

// send sends a request and reads its stream. The answer is valid even with an error.
func (t *Target) send(ctx context.Context, body []byte) (a answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.Timeout, errTimeout)
	defer cancel()
	a.sent = time.Now()
	defer func() {
		a.end = time.Now()
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
			if errors.Is(cause, errTimeout) {
				err = failed(TimedOut, "%v", t.Timeout)
			}
		}
	}()
	r, err := t.request(ctx, t.endpoint(), body)
	if err != nil {
		return a, failed(Connection, "%w", err)
	}
	resp, err := t.Client.Do(r)
	if err != nil {
		return a, failed(Connection, "%w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return a, failed(fmt.Sprintf("status %d", resp.StatusCode), "%s", messageOf(text))
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return a, failed(Malformed, "content type %q", resp.Header.Get("Content-Type"))
	}
	err = a.read(resp.Body)
	return a, err
}

// maxEvent is the longest line of a stream, in bytes.
const maxEvent = 1 << 20

// read reads an event stream until [DONE]. Each data line is one event, as all servers of
// this API send it.
func (a *answer) read(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 1<<12), maxEvent)
	for lines.Scan() {
		now := time.Now()
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		switch string(field) {
		case "", "event", "id", "retry": // "" is a comment or the end of an event
			continue
		case "data":
		default:
			return failed(Malformed, "line %.80q", lines.Bytes())
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if string(value) == "[DONE]" {
			if a.chunks == 0 && (a.usage == nil || a.usage.CompletionTokens == 0) {
				return failed(Empty, "no tokens before [DONE]")
			}
			return nil
		}
		if err := a.event(value, now); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return failed(Malformed, "a line of more than %d bytes", maxEvent)
	case err != nil:
		return failed(CutStream, "%w", err)
	}
	return failed(CutStream, "it ended without [DONE]")
}

// chunk is the JSON of an event of both endpoints.
type chunk struct {
	Choices []struct {
		Text  string `json:"text"`
		Delta struct {
			Role      string            `json:"role"`
			Content   string            `json:"content"`
			Reasoning string            `json:"reasoning_content"`
			ToolCalls []json.RawMessage `json:"tool_calls"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage          `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// event counts an event that was read at the time now.
func (a *answer) event(data []byte, now time.Time) error {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return failed(Malformed, "%w in %.80q", err, data)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return failed(ServerError, "%s", messageOf(data))
	}
	if c.Usage != nil {
		a.usage = c.Usage
	}
	if !c.hasOutput() {
		return nil
	}
	if a.chunks == 0 {
		a.first = now
	} else {
		a.gaps = append(a.gaps, now.Sub(a.last))
	}
	a.last = now
	a.chunks++
	return nil
}

// hasOutput reports whether a chunk carries a token. A token may have no text. The chunks
// that begin and end a choice carry none unless they have text.
func (c *chunk) hasOutput() bool {
	for _, choice := range c.Choices {
		d := choice.Delta
		if choice.Text+d.Content+d.Reasoning != "" || len(d.ToolCalls) > 0 || choice.FinishReason == nil && d.Role == "" {
			return true
		}
	}
	return false
}

// outputTokens returns the number of generated tokens, or of chunks if there is no usage.
func (a *answer) outputTokens() int {
	if a.usage != nil {
		return a.usage.CompletionTokens
	}
	return a.chunks
}

// newClient returns a client that keeps a connection per request in flight.
func newClient(connections int) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, connections
	t.DisableCompression = true
	return &http.Client{Transport: t}
}
