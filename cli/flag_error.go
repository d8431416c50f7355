package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// flagError says in plain words what is wrong with a flag's value.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag, want := invalid.GetFlag(), "it cannot be read"
	switch kind := flag.Value.Type(); {
	case errors.Is(err, strconv.ErrRange):
		want = "the number is too large"
	case strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint"):
		want = "it must be a whole number"
	case strings.HasPrefix(kind, "float"):
		want = "it must be a number"
	case kind == "bool":
		want = "it must be true or false"
	case kind == "stringSlice":
		want = "it must be a list with commas; an item with quotes or commas stands in double quotes"
	}
	return usagef("--%s %q: %s", flag.Name, invalid.GetValue(), want)
}

// wantsJSON looks for --json in arguments that were perhaps not parsed. As in
// parsing, the last one counts, and nothing after a lone --.
func wantsJSON(args []string) bool {
	wants := false
	for _, arg := range args {
		if arg == "--" {
			break
		}
		switch name, value, valued := strings.Cut(arg, "="); {
		case name != "--json":
		case !valued:
			wants = true
		default:
			given, err := strconv.ParseBool(value)
			wants = given || err != nil // wrong, and meant
		}
	}
	return wants
}
