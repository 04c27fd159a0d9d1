package tokenizer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model/tokenizer/internal/jinja"
)

// Message is one turn of a conversation.
type Message struct{ Role, Content string }

// chat is a chat template. It is parsed on first use, so that a model with a bad
// template still runs without it.
type chat struct {
	source string
	once   sync.Once
	parsed *jinja.Template
	err    error
}

// Chat renders a conversation with the chat template of the file. If generate is true,
// the text ends with the beginning of the assistant's turn. Some templates write the
// date of now into the prompt.
//
// Encode the result with Prompt and special tokens, because templates write special tokens.
// The text of special tokens inside messages becomes tokens too.
//
// Templates are not trusted. They see only messages, add_generation_prompt, bos_token,
// eos_token, and tools and documents as none; nesting, steps, memory and output are
// bounded. Errors wrap ErrNoChatTemplate, ErrTemplate or ErrTemplateRaised.
func (t *Tokenizer) Chat(now time.Time, messages []Message, generate bool) (string, error) {
	if t.chat.source == "" {
		return "", fmt.Errorf("tokenizer: %w", ErrNoChatTemplate)
	}
	t.chat.once.Do(func() { t.chat.parsed, t.chat.err = jinja.Parse(t.chat.source) })
	if t.chat.err != nil {
		return "", fmt.Errorf("tokenizer: %w: %w", ErrTemplate, t.chat.err)
	}
	dicts := make([]any, len(messages))
	for i, m := range messages {
		dicts[i] = jinja.NewDict("role", m.Role, "content", m.Content)
	}
	text, err := t.chat.parsed.Render(jinja.NewDict(
		"messages", dicts,
		"add_generation_prompt", generate,
		"bos_token", t.text(t.vocab.BOS),
		"eos_token", t.text(t.vocab.EOS),
		"tools", nil,
		"documents", nil,
	), now)
	switch {
	case errors.Is(err, ErrTemplateRaised):
		return "", fmt.Errorf("tokenizer: chat template: %w", err)
	case err != nil:
		return "", fmt.Errorf("tokenizer: %w: %w", ErrTemplate, err)
	}
	return text, nil
}
