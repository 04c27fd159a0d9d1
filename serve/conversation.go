package serve

import (
	"encoding/json"
	"fmt"
	"strings"
)

// conversation is the input of a chat template.
type conversation struct {
	messages   []message
	tools      []tool
	toolChoice string     // none, auto, required, or the name of a function after namedChoice
	single     bool       // at most one call
	content    *structure // of the answer apart from its reasoning; nil: any text
	variables  map[string]json.RawMessage
}

// namedChoice begins a toolChoice that names a function.
const namedChoice = "function:"

type message struct {
	role, content, reasoning string
	name                     string
	toolCalls                []toolCall // of the assistant
	toolCallID               string     // of a result
}

type toolCall struct {
	id, name  string
	arguments string // JSON
}

type tool struct {
	name       string
	definition json.RawMessage // the element of the field tools
	parameters json.RawMessage // JSON Schema; nil: there are none
	strict     bool            // the arguments of a call follow parameters
}

// variable sets a variable of the template.
func (c *conversation) variable(name string, value json.RawMessage) {
	if c.variables == nil {
		c.variables = map[string]json.RawMessage{}
	}
	c.variables[name] = value
}

// checkTools checks the tools and the choice among them, and sets toolChoice. With none it drops the
// tools, so that the template does not see them.
func (c *conversation) checkTools(choice string) *apiError {
	names := map[string]bool{}
	for i, t := range c.tools {
		if names[t.name] {
			return badRequest(fmt.Sprintf("tools[%d].function.name", i), "%q appears twice", t.name)
		}
		names[t.name] = true
	}
	if choice == "" && len(c.tools) > 0 {
		choice = "auto"
	}
	c.toolChoice = choice
	if name := c.namedFunction(); name != "" && !names[name] {
		return badRequest("tool_choice.function.name", "%q is not among the tools", name)
	}
	if choice == "none" {
		c.tools = nil
	}
	return nil
}

// namedFunction returns the function that toolChoice names, or "".
func (c *conversation) namedFunction() string {
	name, ok := strings.CutPrefix(c.toolChoice, namedChoice)
	if !ok {
		return ""
	}
	return name
}

// message reads an element of messages.
func (d *decoder) message() message {
	var m message
	content := false
	d.object(func(key string) {
		switch key {
		case "role":
			if m.role = d.stringOf("system", "developer", "user", "assistant", "tool"); m.role == "developer" {
				m.role = "system"
			}
		case "content":
			m.content, content = d.content(), true
		case "reasoning_content":
			m.reasoning = d.string()
		case "name":
			m.name = d.string()
		case "tool_calls":
			d.array(func(int) { m.toolCalls = append(m.toolCalls, d.toolCall()) })
		case "tool_call_id":
			m.toolCallID = d.string()
		case "function_call", "audio", "refusal":
			d.skip()
			d.unsupportedHere()
		default:
			d.skip()
		}
	})
	d.require(m.role != "", "role")
	d.require(content || len(m.toolCalls) > 0, "content")
	d.require(m.role != "tool" || m.toolCallID != "", "tool_call_id")
	if d.err == nil && m.role != "assistant" && (len(m.toolCalls) > 0 || m.reasoning != "") {
		d.fail("only the assistant's messages have tool_calls and reasoning_content")
	}
	return m
}

// content reads a string or a list of parts of type text.
func (d *decoder) content() string {
	switch d.peek() {
	case '"':
		return d.string()
	case '[':
		var text strings.Builder
		d.array(func(int) {
			var kind, s string
			found := false
			d.object(func(key string) {
				switch key {
				case "type":
					kind = d.stringOf("text")
				case "text":
					s, found = d.string(), true
				default:
					d.skip()
				}
			})
			d.require(kind != "", "type")
			d.require(found, "text")
			text.WriteString(s)
		})
		return text.String()
	}
	d.want(`"[`, "a string or an array of parts")
	return ""
}

// toolCall reads an element of the tool_calls of a message.
func (d *decoder) toolCall() toolCall {
	var c toolCall
	function := false
	d.object(func(key string) {
		switch key {
		case "id":
			c.id = d.string()
		case "type":
			d.stringOf("function")
		case "function":
			function = true
			d.object(func(key string) {
				switch key {
				case "name":
					c.name = d.string()
				case "arguments":
					if c.arguments = d.string(); d.err == nil && !json.Valid([]byte(c.arguments)) {
						d.fail("the text is not JSON")
					}
				default:
					d.skip()
				}
			})
			d.require(c.name != "", "name")
		default:
			d.skip()
		}
	})
	d.require(c.id != "", "id")
	d.require(function, "function")
	if c.arguments == "" {
		c.arguments = "{}"
	}
	return c
}

// tool reads an element of tools.
func (d *decoder) tool() tool {
	start := d.at
	var t tool
	function, kind := false, ""
	d.object(func(key string) {
		switch key {
		case "type":
			kind = d.stringOf("function")
		case "function":
			function = true
			d.object(func(key string) {
				switch key {
				case "name":
					if t.name = d.string(); d.err == nil && !functionName(t.name) {
						d.fail("%q, want 1 to 64 letters, digits, _ or -", shorten(t.name, 64))
					}
				case "parameters":
					t.parameters = d.rawObject()
				case "strict":
					t.strict = d.bool()
				case "description":
					d.string()
				default:
					d.skip()
				}
			})
			d.require(t.name != "", "name")
		default:
			d.skip()
		}
	})
	d.require(kind != "", "type")
	d.require(function, "function")
	t.definition = d.since(start)
	return t
}

func functionName(s string) bool {
	ok := len(s) > 0 && len(s) <= 64
	for _, c := range s {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-')
	}
	return ok
}

// toolChoice reads none, auto, required, or an object that names a function.
func (d *decoder) toolChoice() string {
	switch d.peek() {
	case '"':
		return d.stringOf("none", "auto", "required")
	case '{':
		name := ""
		d.object(func(key string) {
			switch key {
			case "type":
				d.stringOf("function")
			case "function":
				d.object(func(key string) {
					switch key {
					case "name":
						name = d.string()
					default:
						d.skip()
					}
				})
				d.require(name != "", "name")
			default:
				d.skip()
			}
		})
		d.require(name != "", "function")
		return namedChoice + name
	}
	d.want(`"{`, "a string or an object")
	return ""
}
