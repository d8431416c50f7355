// Package progress draws the bar that long work shows on a terminal.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
)

// Bar draws a bar on a terminal while long work runs, and nothing elsewhere.
type Bar struct {
	mu      sync.Mutex
	w       io.Writer // nil: not a terminal
	label   string
	total   int
	done    int
	started time.Time
	drawn   time.Time
}

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond
)

// New makes a bar that counts to total on w.
func New(w io.Writer, label string, total int) *Bar {
	if !IsTerminal(w) {
		w = nil
	}
	return &Bar{w: w, label: label, total: total, started: time.Now()}
}

// IsTerminal says whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// Set moves the bar to done of total.
func (b *Bar) Set(done int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = done
	if b.w != nil && time.Since(b.drawn) >= barEvery {
		b.drawn = time.Now()
		b.draw()
	}
}

// Finish draws the bar's last state and leaves its line.
func (b *Bar) Finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.w != nil {
		b.draw()
		_, _ = fmt.Fprintln(b.w)
	}
}

func (b *Bar) draw() {
	full := barWidth
	if b.total > 0 {
		full = min(barWidth, barWidth*b.done/b.total)
	}
	rate := float64(b.done) / max(time.Since(b.started).Seconds(), 0.001)
	_, _ = fmt.Fprintf(b.w, "\r\x1b[K%s [%s%s] %d/%d  %.0f/s", b.label,
		strings.Repeat("█", full), strings.Repeat("░", barWidth-full), b.done, b.total, rate)
}
