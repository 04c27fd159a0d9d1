package main

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
	"github.com/lockstep-go/lockstep/model"
)

// values read the values of flags and arguments. They take a negative number for one and
// not for a flag, so that the command that it is meant for says what it wants, and what
// is none they refuse in plain words.
func values() []kong.Option {
	options := []kong.Option{
		kong.KindMapper(reflect.Int, reads("a whole number", func(text string, into reflect.Value) error {
			n, err := strconv.ParseInt(text, 0, into.Type().Bits())
			into.SetInt(n)
			return err
		})),
		kong.KindMapper(reflect.Uint64, reads("a whole number of 0 or more", func(text string, into reflect.Value) error {
			n, err := strconv.ParseUint(text, 0, into.Type().Bits())
			into.SetUint(n)
			return err
		})),
		kong.KindMapper(reflect.Float64, reads("a number", func(text string, into reflect.Value) error {
			x, err := strconv.ParseFloat(text, into.Type().Bits())
			into.SetFloat(x)
			return err
		})),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), reads("a time with its unit, such as 4s or 700ms", func(text string, into reflect.Value) error {
			d, err := time.ParseDuration(text)
			into.SetInt(int64(d))
			return err
		})),
		kong.KindMapper(reflect.String, mapper(func(text string, into reflect.Value) error {
			into.SetString(text)
			return nil
		})),
	}
	for _, t := range []reflect.Type{reflect.TypeFor[path](), reflect.TypeFor[model.KVFormat]()} {
		options = append(options, kong.TypeMapper(t, mapper(func(text string, into reflect.Value) error {
			return into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
		})))
	}
	return options
}

// reads is a mapper of what a parser takes. want is what that is.
func reads(want string, parse func(text string, into reflect.Value) error) kong.MapperFunc {
	return mapper(func(text string, into reflect.Value) error {
		err := parse(text, into)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return fmt.Errorf("%s is out of range", text)
		case err != nil:
			return fmt.Errorf("%q, want %s", text, want)
		}
		return nil
	})
}

// negative is what begins like a flag and is a number.
var negative = regexp.MustCompile(`^-(\.?\d|(?i)inf)`)

// mapper gives a parser the next argument.
func mapper(parse func(text string, into reflect.Value) error) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, into reflect.Value) error {
		t := ctx.Scan.Pop()
		text, ok := t.Value.(string)
		switch {
		case t.IsEOL():
			return errors.New("the value is missing")
		case !ok:
			return fmt.Errorf("%v, want text", t)
		case !t.IsValue() && !negative.MatchString(text):
			return fmt.Errorf("the value is missing before %s, unless that is meant: %s=%s", text, ctx.Value.ShortSummary(), text)
		}
		return parse(text, into)
	}
}
