// Package guard runs user code so that nothing it does can harm more than its
// own event: panics, runtime.Goexit and errors that cannot even be printed all
// end as ordinary errors.
package guard

import (
	"errors"
	"runtime/debug"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

// ErrGoexit says that user code ended its goroutine instead of returning.
var ErrGoexit = errors.New("the handler ended its goroutine (runtime.Goexit, or FailNow of a test) instead of returning")

// PanicError is a recovered panic. Its texts are storable.
type PanicError struct {
	Text  string
	Stack string
}

func (e *PanicError) Error() string { return e.Text }

// Run calls fn on a goroutine of its own and waits for its end, however it ends.
func Run(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		ReserveStack()
		var err error
		returned := false
		defer func() {
			// recover returns nil after Goexit, which is how the two are told apart.
			switch value := recover(); {
			case value != nil:
				err = &PanicError{Text: outcome.PanicText(value), Stack: outcome.StorableText(string(debug.Stack()))}
			case !returned:
				err = ErrGoexit
			}
			done <- err
		}()
		err = fn()
		returned = true
	}()
	return <-done
}
