package serve

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model/sampling"
)

var screenshots = flag.String("screenshots", "", "directory that TestBrowser writes screenshots of the page to")

// browser is a headless Chromium that is driven by the Chrome DevTools Protocol over pipes:
// JSON messages, each followed by a zero byte. https://chromedevtools.github.io/devtools-protocol/
type browser struct {
	in io.Writer

	mu      sync.Mutex
	last    int
	waiting map[int]chan browserMessage
	log     map[string][]string // errors of each tab
}

type browserMessage struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// lacks skips a test for want of a tool. If LOCKSTEP_REQUIRE_TOOLS is set, it fails the test.
func lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("LOCKSTEP_REQUIRE_TOOLS") != "" {
		t.Fatalf("needs %s, and LOCKSTEP_REQUIRE_TOOLS is set", what)
	}
	t.Skipf("needs %s", what)
}

// startBrowser skips the test if there is no Chromium.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		lacks(t, "chromium")
	}
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// A sandbox needs rights that containers lack.
	c := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe")
	c.ExtraFiles = []*os.File{inRead, outWrite}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	inRead.Close()
	outWrite.Close()
	b := &browser{in: inWrite, waiting: map[int]chan browserMessage{}, log: map[string][]string{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(outRead)
	}()
	t.Cleanup(func() {
		fmt.Fprintf(inWrite, "%s\x00", `{"id":1000000,"method":"Browser.close"}`)
		kill := time.AfterFunc(5*time.Second, func() { c.Process.Kill() })
		<-read // Chromium has closed its pipe
		c.Wait()
		kill.Stop()
		inWrite.Close()
		outRead.Close()
	})
	return b
}

// read passes on the messages of Chromium until it ends.
func (b *browser) read(out io.Reader) {
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadBytes(0)
		b.mu.Lock()
		if err != nil {
			for _, c := range b.waiting {
				close(c)
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		}
		var m browserMessage
		if err := json.Unmarshal(line[:len(line)-1], &m); err != nil {
			m = browserMessage{Method: "Runtime.exceptionThrown", Params: line}
		}
		switch m.Method {
		case "Log.entryAdded", "Runtime.exceptionThrown":
			b.log[m.Session] = append(b.log[m.Session], string(m.Params))
		}
		if c := b.waiting[m.ID]; m.ID > 0 && c != nil {
			delete(b.waiting, m.ID)
			c <- m
		}
		b.mu.Unlock()
	}
}

// tab is a page of a browser.
type tab struct {
	*testing.T
	browser *browser
	session string
}

// call runs a command and decodes its result into the value that into points to, if not nil.
func (p *tab) call(method string, params map[string]any, into any) {
	p.Helper()
	b := p.browser
	text, err := json.Marshal(params)
	if err != nil {
		p.Fatal(err)
	}
	answer := make(chan browserMessage, 1)
	b.mu.Lock()
	b.last++
	m := browserMessage{ID: b.last, Session: p.session, Method: method, Params: text}
	if b.waiting == nil {
		close(answer)
	} else {
		b.waiting[m.ID] = answer
	}
	b.mu.Unlock()
	if text, err = json.Marshal(m); err != nil {
		p.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		p.Fatal(err)
	}
	select {
	case m, ok := <-answer:
		if !ok || m.Error != nil {
			p.Fatalf("%s: %s", method, m.Error)
		}
		if into != nil {
			if err := json.Unmarshal(m.Result, into); err != nil {
				p.Fatal(err)
			}
		}
	case <-time.After(longestWait):
		p.Fatalf("%s: no answer within %v", method, longestWait)
	}
}

// open opens a page in a window of a width. The test fails if the page logs an error, such as a
// violation of its policy, of a source other than allowed.
func (b *browser) open(t *testing.T, url string, width int, theme string, allowed ...string) *tab {
	t.Helper()
	p := &tab{T: t, browser: b}
	var target struct{ TargetID string }
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	p.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	t.Cleanup(func() {
		(&tab{T: t, browser: b}).call("Target.closeTarget", map[string]any{"targetId": target.TargetID}, nil)
		b.mu.Lock()
		defer b.mu.Unlock()
	entries:
		for _, entry := range b.log[p.session] {
			for _, a := range allowed {
				if strings.Contains(entry, a) {
					continue entries
				}
			}
			t.Errorf("the browser logs %s", entry)
		}
	})
	p.call("Runtime.enable", nil, nil)
	p.call("Log.enable", nil, nil)
	p.view(width, theme)
	p.call("Page.enable", nil, nil)
	p.call("Page.navigate", map[string]any{"url": url}, nil)
	p.await(`location.href.startsWith("http") && document.readyState === "complete"`)
	return p
}

// Widths of a window, in pixels.
const (
	wide  = 1000
	phone = 400
)

// view sets the width of the window and the color scheme.
func (p *tab) view(width int, theme string) {
	p.Helper()
	height := map[int]int{wide: 560, phone: 800}[width]
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width == phone}, nil)
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": theme}}}, nil)
}

// eval returns the value of an expression as JSON. An expression that throws has none.
func (p *tab) eval(expression string) string {
	p.Helper()
	var r struct {
		Result struct{ Value json.RawMessage }
	}
	p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r)
	return string(r.Result.Value)
}

// await waits until an expression is true.
func (p *tab) await(expression string) {
	p.Helper()
	for end := time.Now().Add(longestWait); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if p.eval(expression) == "true" {
			return
		}
	}
	p.Fatalf("not within %v: %s; the page has: %s", longestWait, expression, p.eval("document.body.innerText"))
}

// set types a value into a field.
func (p *tab) set(id, value string) {
	p.Helper()
	p.eval(`document.getElementById("` + id + `").focus()`)
	p.call("Input.insertText", map[string]any{"text": value}, nil)
}

func (p *tab) press(key string, code int) {
	p.Helper()
	p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": "\r"}, nil)
	p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

func (p *tab) click(id string) {
	p.Helper()
	var at struct{ X, Y float64 }
	text := p.eval(`(() => { const r = document.getElementById("` + id + `").getBoundingClientRect(); return {x: r.x + r.width / 2, y: r.y + r.height / 2}; })()`)
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		p.Fatalf("%s: %v: %s", id, err, text)
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
}

// say sends a prompt by the Enter key.
func (p *tab) say(prompt string) {
	p.Helper()
	p.await(`document.getElementById("hint").textContent !== "Connecting…"`)
	p.set("prompt", prompt)
	p.press("Enter", 13)
}

// fits requires that nothing reaches beyond the window's width, and takes a screenshot.
func (p *tab) fits(name string) {
	p.Helper()
	if got := p.eval(`[...document.querySelectorAll("body, body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + "#" + e.id)`); got != "[]" {
		p.Errorf("%s: too wide: %s", name, got)
	}
	if *screenshots == "" {
		return
	}
	var shot struct{ Data string }
	p.call("Page.captureScreenshot", nil, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, name+".png"), data, 0o644)
	}
	if err != nil {
		p.Fatal(err)
	}
}

const answers = `[...document.querySelectorAll(".turn.model")].map((e) => e.firstChild.data).join("|")`

func literal(s string) string { return string(marshal(s)) }

// TestBrowser opens the page in a real browser.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("generates with the embedded model for a minute")
	}
	b := startBrowser(t)

	t.Run("text", func(t *testing.T) {
		g := embedded(t)
		want := ""
		sampled := sampling.Params{Temperature: 0.7, TopP: 0.95, Seed: 3}
		for token, err := range g.Text(t.Context(), "Well, Prince,", generate.Params{Sampling: sampled, MaxTokens: 60}) {
			if err != nil {
				t.Fatal(err)
			}
			want += token.Text
		}
		p := b.open(t, startModel(t, g)+"/", wide, "light")
		p.await(`document.getElementById("hint").textContent.includes("continues the text")`)
		p.fits("empty-light-wide")
		p.eval(`max_tokens.value = ""`)
		p.set("max_tokens", "60")
		p.set("temperature", "0.7")
		p.set("top_p", "0.95")
		p.set("seed", "3")
		p.say("Well, Prince,")
		p.await(answers + ` === ` + literal(want))
		p.await(`/^60 tokens · [\d.]+ tokens\/s · first token after [\d.]+ s · seed 3 · length$/.test(document.getElementById("status").textContent)`)
		p.click("send") // without a text of its own: the rest of the answer
		p.await(`document.querySelectorAll(".turn.model").length === 2 && document.getElementById("stop").hidden`)
		p.fits("text-light-wide")
		p.view(phone, "dark")
		p.fits("text-dark-narrow")
		p.eval(`location.hash = "#scheduler"`)
		p.await(`document.getElementById("totals").textContent.includes("Generated tokens180")`)
	})

	t.Run("chat", func(t *testing.T) {
		const answer = `<img src=x onerror="document.title='bad'"> & <b>no</b>`
		f := newFake(answer)
		f.prompts = make(chan []int, 2)
		p := b.open(t, urlOf(start(t, f, Options{}))+"/", wide, "dark")
		p.set("system", "Be brief.")
		p.say("<i>hi</i>")
		p.await(answers + ` === ` + literal(answer))
		p.await(`document.getElementById("stop").hidden`)
		p.say("again")
		p.await(answers + ` === ` + literal(answer+"|"+answer))
		p.await(`document.getElementById("stop").hidden`)
		p.fits("chat-dark-wide")
		p.view(phone, "light")
		p.fits("chat-light-narrow")
		if got := p.eval(`document.querySelectorAll("#log :is(img, b, i)").length`); got != "0" {
			t.Errorf("%s elements came from text", got)
		}
		<-f.prompts
		prompt, _ := f.detokenize(<-f.prompts)
		if want := "system:Be brief.\nuser:<i>hi</i>\nassistant:" + answer + "\nuser:again\n"; prompt != want {
			t.Errorf("the prompt is %q, want %q", prompt, want)
		}
	})

	t.Run("reasoning", func(t *testing.T) {
		f := newFake("(a")
		f.newParser = func() answerParser { return &upper{} }
		p := b.open(t, urlOf(start(t, f, Options{}))+"/", wide, "light")
		p.say("hi")
		p.await(`/^Reasoning\s*hm\s*a\s*2 tokens/.test(document.querySelector(".turn.model")?.innerText)`)
	})

	t.Run("stop", func(t *testing.T) {
		f := endless()
		p := b.open(t, urlOf(start(t, f, Options{}))+"/", wide, "light")
		p.say("hi")
		p.await(answers + `.length > 3`)
		p.click("stop")
		eventually(t, "the generation ends", func() bool { return f.running.Load() == 0 })
		p.await(`document.querySelector(".stats").textContent.endsWith("stopped") && ` + answers + `.length > 3`)
	})

	t.Run("error", func(t *testing.T) {
		f := newFake("a")
		f.refuse = badRequest("top_p", "not today")
		p := b.open(t, urlOf(start(t, f, Options{}))+"/", phone, "light", "status of 400")
		p.say("a long thought")
		p.await(`document.querySelector("#turns > .error")?.textContent === "top_p: not today"`)
		p.await(`document.getElementById("prompt").value === "a long thought" && document.querySelectorAll(".turn").length === 0`)
		p.fits("error-light-narrow")
	})

	t.Run("key", func(t *testing.T) {
		p := b.open(t, urlOf(start(t, newFake("abc"), Options{APIKeys: []string{"right"}}))+"/", phone, "dark", "status of 401")
		p.await(`document.getElementById("key-dialog").open`)
		p.set("key", "wrong")
		p.press("Enter", 13)
		p.await(`!document.getElementById("key-error").hidden`)
		p.fits("key-dark-narrow")
		p.set("key", "right")
		p.press("Enter", 13)
		p.say("hi")
		p.await(answers + ` === "abc"`)
	})

	t.Run("scheduler", func(t *testing.T) {
		f := newFake("a")
		var at int
		var mu sync.Mutex
		live := &stepping{f, func() generate.Load {
			mu.Lock()
			defer mu.Unlock()
			at++
			return generate.Load{
				Running: 3 + at, Waiting: 2 * at, Pages: 64, FreePages: 60 - at, Steps: at, PromptTokens: 700 * at, GeneratedTokens: 400 * at,
				StepRows: 3 + at, StepPromptTokens: 512 >> (at % 3), StepTime: time.Duration(at) * time.Millisecond, Preemptions: 9,
			}
		}}
		p := b.open(t, urlOf(start(t, live, Options{}))+"/#scheduler", wide, "light")
		p.await(`document.querySelectorAll("figure path").length === 8 && [...document.querySelectorAll("figure path")].every((e) => (e.getAttribute("d").match(/L/g) ?? []).length >= 2)`)
		p.await(`(() => { const s = samples.at(-1), text = document.body.innerText; return text.includes("running " + s.running) && text.includes("in use " + (64 - s.free_pages)); })()`)
		p.fits("scheduler-light-wide")
		light := p.eval(`getComputedStyle(document.body).backgroundColor`)
		p.view(phone, "dark")
		p.fits("scheduler-dark-narrow")
		if dark := p.eval(`getComputedStyle(document.body).backgroundColor`); dark == light {
			t.Errorf("the background is %s in both themes", dark)
		}
	})
}

// stepping is a fake with a load that changes.
type stepping struct {
	*fake
	now func() generate.Load
}

func (s *stepping) load() generate.Load { return s.now() }

// urlOf returns the second result of start.
func urlOf(_ *Server, url string) string { return url }
