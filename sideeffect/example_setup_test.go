package sideeffect_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/oxbow-jobs/oxbow/internal/dbtest"
)

// exampleT lets examples use the helpers of tests.
type exampleT struct {
	testing.TB
	cleanups *[]func()
}

func (exampleT) Helper()                      {}
func (exampleT) Name() string                 { return "example" }
func (exampleT) Context() context.Context     { return context.Background() }
func (exampleT) Errorf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (exampleT) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (exampleT) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (exampleT) FailNow()                     { panic("failed") }
func (t exampleT) Cleanup(fn func())          { *t.cleanups = append(*t.cleanups, fn) }

func (t exampleT) TempDir() string {
	dir, err := os.MkdirTemp("", "oxbow-example-")
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// worker stands for the engine: it claims one event again and again.
type worker struct{ *event }

func newWorker() (w *worker, closeAll func()) {
	t := exampleT{cleanups: new([]func())}
	e := newEvent(t, dbtest.SQLite(t).DB)
	return &worker{e}, func() {
		for i := len(*t.cleanups) - 1; i >= 0; i-- {
			(*t.cleanups)[i]()
		}
	}
}

// attempt runs a handler under a new claim and prints how it ended.
func (w *worker) attempt(handler func(ctx context.Context) error) {
	w.again()
	if err := handler(w.ctx); err != nil {
		fmt.Println("attempt:", strings.ReplaceAll(err.Error(), w.id, "ID"))
		return
	}
	fmt.Println("attempt: done")
}
