package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// The values of error.type.
const (
	typeInvalid = "invalid_request_error"
	typeLimit   = "rate_limit_error"
	typeServer  = "server_error"
)

// statusClosed is the status in logs and metrics if the client left.
const statusClosed = 499

// Causes of a context that ends a request.
var (
	errStopping = errors.New("the server is stopping")
	errTimeout  = errors.New("the request took longer than the server allows")
)

// apiError is an error in OpenAI's form. Param and Code are null if empty.
type apiError struct {
	status     int
	retryAfter int // seconds; 0: no Retry-After header
	Message    string
	Type       string
	Param      string
	Code       string
}

func (e *apiError) Error() string { return e.Message }

// MarshalJSON returns the object of the field error.
func (e *apiError) MarshalJSON() ([]byte, error) {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return json.Marshal(struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}{e.Message, e.Type, orNull(e.Param), orNull(e.Code)})
}

// errorBody is the body of a response, or of the last event of a stream, that reports an error.
type errorBody struct {
	Error *apiError `json:"error"`
}

func busy(why string) *apiError {
	return &apiError{status: http.StatusTooManyRequests, retryAfter: retrySeconds, Type: typeLimit, Code: "server_busy", Message: why}
}

// stopping refuses a request while the server stops.
func stopping() *apiError {
	return &apiError{status: http.StatusServiceUnavailable, retryAfter: retrySeconds, Type: typeServer, Code: "stopping", Message: errStopping.Error()}
}

// deviceLost refuses a request because no step can succeed any more. Without a new process a retry
// is useless, so there is no Retry-After.
func deviceLost(err error) *apiError {
	return &apiError{status: http.StatusServiceUnavailable, Type: typeServer, Code: "device_lost", Message: shorten(err.Error(), 500)}
}

// retrySeconds is the value of Retry-After.
const retrySeconds = 1

// badRequest is the error of a request with status 400. param names the field, "" none.
func badRequest(param, format string, args ...any) *apiError {
	message := fmt.Sprintf(format, args...)
	if param != "" {
		message = param + ": " + message
	}
	return &apiError{status: http.StatusBadRequest, Type: typeInvalid, Message: message, Param: param}
}

// unsupported refuses a field that is valid, but that this server or model does not support.
func unsupported(param, format string, args ...any) *apiError {
	e := badRequest(param, format, args...)
	e.Code = "unsupported_parameter"
	return e
}

// asAPIError converts an error of the backend. If ctx has ended, its cause replaces errors that are
// not about the request.
func (s *Server) asAPIError(ctx context.Context, err error) *apiError {
	if api, ok := errors.AsType[*apiError](err); ok {
		return api
	}
	if e, ok := errors.AsType[*tokenizer.ConversationError](err); ok {
		return badRequest(e.Field, "%s", shorten(e.Reason, 500))
	}
	if cause := context.Cause(ctx); cause != nil {
		switch {
		case errors.Is(cause, errStopping):
			return stopping()
		case errors.Is(cause, errTimeout):
			return &apiError{status: http.StatusGatewayTimeout, Type: typeServer, Code: "timeout", Message: fmt.Sprintf("%v: %v", errTimeout, s.options.RequestTimeout)}
		case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
			return &apiError{status: statusClosed, Type: typeServer, Message: "the client closed the connection"}
		}
	}
	switch {
	case errors.Is(err, generate.ErrBusy):
		return busy(generate.ErrBusy.Error())
	case errors.Is(err, model.ErrClosed):
		return stopping()
	case errors.Is(err, driver.ErrDeviceLost):
		return deviceLost(err)
	}
	for _, k := range []struct {
		sentinel    error
		param, code string
	}{
		{model.ErrContextLimit, "", "context_length_exceeded"},
		{model.ErrEmptyPrompt, "", "empty_prompt"},
		{model.ErrBadToken, "", "bad_token"},
		{model.ErrNoTokenizer, "", "no_tokenizer"},
		{tokenizer.ErrNoChatTemplate, "messages", "no_chat_template"},
		{tokenizer.ErrTemplateRaised, "messages", "template_refused"},
		{tokenizer.ErrTemplate, "messages", "template_failed"},
		{generate.ErrBadParams, "", "bad_parameter"},
	} {
		if errors.Is(err, k.sentinel) {
			e := badRequest(k.param, "%s", shorten(err.Error(), 500))
			e.Code = k.code
			return e
		}
	}
	return &apiError{status: http.StatusInternalServerError, Type: typeServer, Code: "internal_error", Message: shorten(err.Error(), 500)}
}
