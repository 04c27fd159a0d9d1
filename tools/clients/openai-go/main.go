// Command openai-go drives a server with OpenAI's client for Go. It is a module of its own, so
// that the client's dependencies are not those of lockstep.
//
//	openai-go URL KEY
//
// It prints a line per check, and ends with status 1 if one failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// model is what the server of serve/clients_test.go is called. Its answers depend on the text of the
// last message.
const model = "fake"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: openai-go URL KEY")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := checks{
		ctx:    ctx,
		client: openai.NewClient(option.WithBaseURL(os.Args[1]+"/v1"), option.WithAPIKey(os.Args[2]), option.WithMaxRetries(0)),
	}
	failed := false
	for _, check := range []struct {
		name string
		run  func() error
	}{
		{"models", c.models}, {"chat", c.chat}, {"stream", c.stream}, {"tools", c.tools}, {"tool choice", c.toolChoice}, {"tools streamed", c.toolsStreamed},
		{"completion", c.completion}, {"embeddings", c.embeddings}, {"errors", c.errors}, {"retry", c.retry},
		{"error in a stream", c.brokenStream}, {"timeout", c.timeout}, {"cancel", c.cancel},
	} {
		if err := check.run(); err != nil {
			failed = true
			fmt.Printf("failed %s: %v\n", check.name, err)
			continue
		}
		fmt.Println("ok", check.name)
	}
	if failed {
		os.Exit(1)
	}
}

type checks struct {
	ctx    context.Context
	client openai.Client
}

// same returns an error if got is not want.
func same(what string, got, want any) error {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return nil
}

func ask(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Answer."), openai.UserMessage(text)},
	}
}

func (c *checks) models() error {
	list, err := c.client.Models.List(c.ctx)
	if err != nil {
		return err
	}
	one, err := c.client.Models.Get(c.ctx, model)
	if err != nil {
		return err
	}
	return errors.Join(same("models", len(list.Data), 1), same("id", list.Data[0].ID, model), same("model", one.ID, model))
}

func (c *checks) chat() error {
	p := ask("hello")
	p.Seed, p.Temperature, p.MaxCompletionTokens = openai.Int(3), openai.Float(0.5), openai.Int(100)
	p.Stop = openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"END"}}
	p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(2)
	r, err := c.client.Chat.Completions.New(c.ctx, p)
	if err != nil {
		return err
	}
	choice := r.Choices[0]
	return errors.Join(
		same("content", choice.Message.Content, "Hello there!"), same("finish", choice.FinishReason, "stop"),
		same("tokens", r.Usage.CompletionTokens, len("Hello there!")), same("total", r.Usage.TotalTokens, r.Usage.PromptTokens+r.Usage.CompletionTokens),
		same("logprobs", len(choice.Logprobs.Content), len("Hello there!")), same("top", len(choice.Logprobs.Content[0].TopLogprobs), 2),
	)
}

func (c *checks) stream() error {
	p := ask("hello")
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	s := c.client.Chat.Completions.NewStreaming(c.ctx, p)
	var all openai.ChatCompletionAccumulator
	for s.Next() {
		if !all.AddChunk(s.Current()) {
			return fmt.Errorf("a chunk does not continue the others: %s", s.Current().RawJSON())
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return errors.Join(
		same("content", all.Choices[0].Message.Content, "Hello there!"), same("finish", all.Choices[0].FinishReason, "stop"),
		same("tokens", all.Usage.CompletionTokens, len("Hello there!")), same("role", all.Choices[0].Message.Role, "assistant"),
	)
}

func withTools(p openai.ChatCompletionNewParams) openai.ChatCompletionNewParams {
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name:       "weather",
		Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}},
	})}
	return p
}

// tools asks for a call, and answers it.
func (c *checks) tools() error {
	p := withTools(ask("weather"))
	r, err := c.client.Chat.Completions.New(c.ctx, p)
	if err != nil {
		return err
	}
	m := r.Choices[0].Message
	if len(m.ToolCalls) != 1 {
		return fmt.Errorf("calls: %s", m.RawJSON())
	}
	call := m.ToolCalls[0]
	p.Messages = append(p.Messages, m.ToParam(), openai.ToolMessage("sunny", call.ID))
	after, err := c.client.Chat.Completions.New(c.ctx, p)
	if err != nil {
		return err
	}
	return errors.Join(
		same("name", call.Function.Name, "weather"), same("arguments", call.Function.Arguments, `{"city":"Rome"}`),
		same("finish", r.Choices[0].FinishReason, "tool_calls"), same("answer", after.Choices[0].Message.Content, "It is sunny."),
	)
}

// toolChoice asks for a call of any function, of one that it names, and for none.
func (c *checks) toolChoice() error {
	var errs []error
	for _, t := range []struct {
		choice openai.ChatCompletionToolChoiceOptionUnionParam
		calls  int
		finish string
	}{
		{openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}, 1, "tool_calls"},
		{openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "weather"}), 1, "stop"},
		{openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("none")}, 0, "stop"},
	} {
		p := withTools(ask("hello"))
		p.ToolChoice = t.choice
		r, err := c.client.Chat.Completions.New(c.ctx, p)
		if err != nil {
			return err
		}
		errs = append(errs, same("calls", len(r.Choices[0].Message.ToolCalls), t.calls), same("finish", r.Choices[0].FinishReason, t.finish))
	}
	return errors.Join(errs...)
}

func (c *checks) toolsStreamed() error {
	s := c.client.Chat.Completions.NewStreaming(c.ctx, withTools(ask("weather")))
	var all openai.ChatCompletionAccumulator
	finished := 0
	for s.Next() {
		all.AddChunk(s.Current())
		if call, ok := all.JustFinishedToolCall(); ok {
			finished++
			if err := errors.Join(same("name", call.Name, "weather"), same("arguments", call.Arguments, `{"city":"Rome"}`)); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.Err(), same("calls", finished, 1), same("finish", all.Choices[0].FinishReason, "tool_calls"))
}

func (c *checks) completion() error {
	p := openai.CompletionNewParams{
		Model: model, MaxTokens: openai.Int(5), N: openai.Int(2),
		Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"hello", "hello"}},
	}
	r, err := c.client.Completions.New(c.ctx, p)
	if err != nil {
		return err
	}
	var texts []string
	for _, choice := range r.Choices {
		texts = append(texts, choice.Text)
	}
	p.Prompt, p.N = openai.CompletionNewParamsPromptUnion{OfString: openai.String("hello")}, openai.Int(1)
	s := c.client.Completions.NewStreaming(c.ctx, p)
	streamed := ""
	for s.Next() {
		streamed += s.Current().Choices[0].Text
	}
	return errors.Join(s.Err(), same("texts", texts, []string{"Hello", "Hello", "Hello", "Hello"}), same("streamed", streamed, "Hello"))
}

func (c *checks) embeddings() error {
	r, err := c.client.Embeddings.New(c.ctx, openai.EmbeddingNewParams{Model: model, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"hello", "12345"}}})
	if err != nil {
		return err
	}
	return errors.Join(same("vectors", len(r.Data), 2), same("vector", r.Data[1].Embedding, []float64{0.6, 0, 0.8}), same("tokens", r.Usage.PromptTokens, 10))
}

// status checks the parts of an error.
func status(err error, want int, param, code string) error {
	var e *openai.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("no error of the server: %v", err)
	}
	return errors.Join(same("status", e.StatusCode, want), same("param", e.Param, param), same("code", e.Code, code))
}

func (c *checks) errors() error {
	wrong := ask("hello")
	wrong.Temperature = openai.Float(-1)
	_, bad := c.client.Chat.Completions.New(c.ctx, wrong)
	other := ask("hello")
	other.Model = "other"
	_, missing := c.client.Chat.Completions.New(c.ctx, other)
	_, key := c.client.Models.List(c.ctx, option.WithAPIKey("wrong"))
	_, failed := c.client.Chat.Completions.New(c.ctx, ask("fail"))
	return errors.Join(status(bad, 400, "temperature", ""), status(missing, 404, "model", "model_not_found"),
		status(key, 401, "", "invalid_api_key"), status(failed, 500, "", "internal_error"))
}

// retry: the first request gets 429, and the client repeats it after Retry-After.
func (c *checks) retry() error {
	_, busy := c.client.Chat.Completions.New(c.ctx, ask("busy"))
	r, err := c.client.Chat.Completions.New(c.ctx, ask("busy once"), option.WithMaxRetries(1))
	if err != nil {
		return err
	}
	return errors.Join(status(busy, http.StatusTooManyRequests, "", "server_busy"), same("content", r.Choices[0].Message.Content, "Hello there!"))
}

func (c *checks) brokenStream() error {
	s := c.client.Chat.Completions.NewStreaming(c.ctx, ask("fail"))
	text := ""
	for s.Next() {
		for _, choice := range s.Current().Choices {
			text += choice.Delta.Content
		}
	}
	if s.Err() == nil || !strings.Contains(s.Err().Error(), "lost") {
		return fmt.Errorf("error %v, want that of the model", s.Err())
	}
	return same("text before it", text, "He")
}

func (c *checks) timeout() error {
	_, err := c.client.Chat.Completions.New(c.ctx, ask("endless"), option.WithRequestTimeout(50*time.Millisecond))
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("error %v", err)
	}
	return nil
}

func (c *checks) cancel() error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	s := c.client.Chat.Completions.NewStreaming(ctx, ask("endless"))
	var seen []string
	for s.Next() {
		if seen = append(seen, s.Current().Choices[0].Delta.Content); len(seen) == 4 {
			cancel()
		}
	}
	if !errors.Is(s.Err(), context.Canceled) || !slices.Contains(seen, "a") {
		return fmt.Errorf("error %v after %q", s.Err(), seen)
	}
	return nil
}
