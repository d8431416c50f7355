// Command testprogress reads the output of "go test -json" and prints one line
// per package as it ends, what failed in full, and the totals. While nothing
// ends it says every 15 s what is running.
//
// It imports no other package of this module.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

const heartbeat = 15 * time.Second

func main() {
	packages := flag.Int("packages", 0, "how many packages are expected")
	flag.Parse()
	report := newReport(os.Stdout, *packages)
	read(os.Stdin, report)
	if !report.finish() {
		os.Exit(1)
	}
}

// read feeds the report with events, and with a tick whenever a heartbeat
// passes without the end of a package.
func read(in io.Reader, report *report) {
	events := make(chan event)
	go func() {
		defer close(events)
		lines := bufio.NewReader(in)
		for {
			line, err := lines.ReadBytes('\n')
			var ev event
			if json.Unmarshal(line, &ev) == nil && ev.Action != "" {
				events <- ev
			} else if len(line) > 0 {
				events <- event{Action: "stray", Output: string(line)}
			}
			if err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return
			}
			if report.add(ev) {
				tick.Reset(heartbeat)
			}
		case <-tick.C:
			report.tick()
		}
	}
}

func elapsed(since time.Time) string {
	return fmt.Sprintf("[%3.0fs]", time.Since(since).Seconds())
}
