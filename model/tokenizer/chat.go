package tokenizer

import (
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model/tokenizer/internal/jinja"
)

// Message is one turn of a conversation.
type Message struct{ Role, Content string }

// chat is a chat template, parsed when it is first used: a file whose template
// is bad can still be run without it.
type chat struct {
	source string
	once   sync.Once
	parsed *jinja.Template
	err    error
}

// Chat renders the conversation with the chat template of the file, as of now.
// addGenerationPrompt ends it with the beginning of the assistant's turn. The
// result usually contains special tokens: encode it by Prompt(text, true).
// Beware that text of special tokens inside the messages becomes tokens too.
func (t *Tokenizer) Chat(msgs []Message, addGenerationPrompt bool) (string, error) {
	return t.ChatAt(time.Now(), msgs, addGenerationPrompt)
}

// ChatAt is Chat at a given time, which some templates write into the prompt.
//
// Templates come from files that nobody has vetted, and are rendered with
// bounded nesting, steps, memory and output and without access to anything but
// messages, add_generation_prompt, bos_token, eos_token, and tools and documents
// that are none. Errors: ErrNoChatTemplate, ErrTemplateSyntax, ErrTemplate,
// ErrTemplateLimit, ErrTemplateRaised.
func (t *Tokenizer) ChatAt(now time.Time, msgs []Message, addGenerationPrompt bool) (string, error) {
	if t.chat.source == "" {
		return "", fmt.Errorf("tokenizer: %w", ErrNoChatTemplate)
	}
	t.chat.once.Do(func() { t.chat.parsed, t.chat.err = jinja.Parse(t.chat.source) })
	if t.chat.err != nil {
		return "", fmt.Errorf("tokenizer: chat template: %w", t.chat.err)
	}
	messages := make([]any, len(msgs))
	for i, m := range msgs {
		messages[i] = jinja.NewDict("role", m.Role, "content", m.Content)
	}
	text, err := t.chat.parsed.Render(jinja.NewDict(
		"messages", messages,
		"add_generation_prompt", addGenerationPrompt,
		"bos_token", t.Token(t.vocab.BOS),
		"eos_token", t.Token(t.vocab.EOS),
		"tools", nil,
		"documents", nil,
	), now)
	if err != nil {
		return "", fmt.Errorf("tokenizer: chat template: %w", err)
	}
	return text, nil
}
