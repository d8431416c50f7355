package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// report is what the program prints.
type report struct{ out io.Writer }

func (r *report) line(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, "  "+format+"\n", args...)
}

func (r *report) opening(dialect dbtx.Dialect) {
	name := "a SQLite file"
	if dialect == dbtx.Postgres {
		name = "Postgres"
	}
	_, _ = fmt.Fprintf(r.out, "One accident, twice, on %s: a worker is frozen, its jobs are taken over, and then it wakes up.\n", name)
}

func (r *report) chapter(name string) { _, _ = fmt.Fprintf(r.out, "\n%s\n", name) }

// titles say what A does with each job when it wakes up.
var titles = map[string]string{
	endNil:    "returns nil",
	endError:  "returns an error",
	endSnooze: "snoozes for an hour",
	endCommit: "commits a transaction",
}

func (r *report) job(name string, o outcome) {
	text := damage(name, o)
	if text == "" {
		text = "no damage: " + good(name, o)
	}
	r.line("- A %-22s %s.", titles[name]+":", text)
}

// damage says what harm a job came to, or is empty.
func damage(job string, o outcome) string {
	end := o.inTheEnd
	switch job {
	case endNil:
		if o.done == 0 || !strings.Contains(end.Errors, errOfB.Error()) {
			return fmt.Sprintf("the job was %s while B was still working on it; B's failure is thrown away and the work never done", o.whileBWorks.State)
		}
	case endError:
		if o.atATime > 1 {
			return "a third run began beside B's, the same job twice at a time"
		}
	case endSnooze:
		if end.State != "completed" {
			return fmt.Sprintf("B's success is thrown away; the job is %s and will be done again in an hour", end.State)
		}
	case endCommit:
		if o.charges != 1 {
			return fmt.Sprintf("the customer is charged %d times: A's transaction and B's both committed", o.charges)
		}
	}
	if o.whileBWorks.State != "running" || o.whileBWorks.Attempt != 2 || end.State != "completed" {
		return fmt.Sprintf("A changed B's job to %s, attempt %d; in the end it is %s", o.whileBWorks.State, o.whileBWorks.Attempt, end.State)
	}
	return ""
}

// good says what came of a job that nothing happened to.
func good(job string, o outcome) string {
	switch job {
	case endNil:
		return fmt.Sprintf("B's failure was kept, and attempt %d succeeded", o.inTheEnd.Attempt)
	case endCommit:
		return "the customer was charged once, by B"
	}
	return fmt.Sprintf("the job was B's alone and is completed, attempt %d", o.inTheEnd.Attempt)
}

// table compares the two, and is true if plain River came to harm everywhere and
// Oxbow nowhere.
func (r *report) table(plain, ours map[string]outcome) (asExpected bool) {
	short := map[string]string{
		endNil: "B's failure lost, work never done", endError: "two runs at a time",
		endSnooze: "B's success lost, done again later", endCommit: "charged twice",
	}
	_, _ = fmt.Fprintf(r.out, "\n%-24s  %-36s  %s\n%s\n", "A wakes up and", "plain River", "Oxbow", strings.Repeat("-", 72))
	asExpected = true
	for _, job := range jobNames {
		left, right := "no damage", "no damage"
		if damage(job, plain[job]) != "" {
			left = short[job]
		} else {
			asExpected = false
		}
		if text := damage(job, ours[job]); text != "" {
			right, asExpected = text, false
		}
		_, _ = fmt.Fprintf(r.out, "%-24s  %-36s  %s\n", titles[job], left, right)
	}
	if !asExpected {
		_, _ = fmt.Fprintf(r.out, "\nThis is not what was expected.\n")
	}
	return asExpected
}

func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
