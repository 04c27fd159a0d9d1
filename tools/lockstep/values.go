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

// values returns the parsers of flag values. Unlike kong's own, they accept negative
// numbers as values, and their errors name the wanted type.
func values() []kong.Option {
	options := []kong.Option{
		kong.KindMapper(reflect.Int, parser("a whole number", func(text string, into reflect.Value) error {
			n, err := strconv.ParseInt(text, 0, into.Type().Bits())
			into.SetInt(n)
			return err
		})),
		kong.KindMapper(reflect.Uint64, parser("a whole number of 0 or more", func(text string, into reflect.Value) error {
			n, err := strconv.ParseUint(text, 0, into.Type().Bits())
			into.SetUint(n)
			return err
		})),
		kong.KindMapper(reflect.Float64, parser("a number", func(text string, into reflect.Value) error {
			x, err := strconv.ParseFloat(text, into.Type().Bits())
			into.SetFloat(x)
			return err
		})),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), parser("a duration such as 4s or 700ms", func(text string, into reflect.Value) error {
			d, err := time.ParseDuration(text)
			into.SetInt(int64(d))
			return err
		})),
		kong.KindMapper(reflect.String, mapper(func(text string, into reflect.Value) error {
			into.SetString(text)
			return nil
		})),
	}
	for _, t := range []reflect.Type{reflect.TypeFor[path](), reflect.TypeFor[modelFile](), reflect.TypeFor[outPath](), reflect.TypeFor[model.KVFormat]()} {
		options = append(options, kong.TypeMapper(t, mapper(func(text string, into reflect.Value) error {
			return into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
		})))
	}
	return options
}

// parser returns a mapper for a parse function. want names the type in errors.
func parser(want string, parse func(text string, into reflect.Value) error) kong.MapperFunc {
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

// negative matches a number that looks like a flag.
var negative = regexp.MustCompile(`^-(\.?\d|(?i)inf)`)

// mapper returns a kong mapper that parses the next argument.
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
			return fmt.Errorf("the value is missing before %s; if that is the value, write %s=%s", text, ctx.Value.ShortSummary(), text)
		}
		return parse(text, into)
	}
}
