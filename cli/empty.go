package cli

import (
	"slices"

	"github.com/spf13/pflag"
)

// mayBeEmpty are the flags whose empty value says something: serve nothing.
var mayBeEmpty = []string{"http-addr"}

// refuseEmpty refuses a flag that was given and says nothing, as an unset variable
// of a script makes it: a filter that is left out by mistake matches everything.
func refuseEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(flag *pflag.Flag) {
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if err == nil && (len(values) == 0 || slices.Contains(values, "")) && !slices.Contains(mayBeEmpty, flag.Name) {
			err = usagef("--%s is empty: give it a value or leave it out", flag.Name)
		}
	})
	return err
}
