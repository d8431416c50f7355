package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is what "go test -json" prints per line (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

// shownAgain is how many lines of a failed test stand at the end of the log.
const shownAgain = 12

type report struct {
	out      io.Writer
	started  time.Time
	expected int
	ended    int
	running  []string
	packages map[string]*pkg

	passed, failed, skipped int
	broken                  int      // packages that failed
	failures                []string // for the end, each a name and the first lines of what it wrote
}

// pkg is one package's run. Output is kept until its test has passed.
type pkg struct {
	tests  int
	failed bool
	order  []string
	output map[string]*strings.Builder // by test; "" is the package's own
}

func newReport(out io.Writer, expected int) *report {
	return &report{out: out, started: time.Now(), expected: expected, packages: map[string]*pkg{}}
}

// add takes one event and says whether it ended a package.
func (r *report) add(ev event) bool {
	name := ev.Package
	if name == "" {
		name, _, _ = strings.Cut(ev.ImportPath, " ")
	}
	p := r.packages[name]
	if p == nil {
		p = &pkg{output: map[string]*strings.Builder{}}
		r.packages[name] = p
	}
	switch ev.Action {
	case "start":
		r.running = append(r.running, name)
	case "stray":
		fmt.Fprint(r.out, ev.Output)
	case "output", "build-output":
		p.write(ev.Test, ev.Output)
	case "pass", "fail", "skip":
		if ev.Test == "" {
			r.endPackage(name, p, ev)
			return true
		}
		r.endTest(p, ev)
	}
	return false
}

func (p *pkg) write(test, text string) {
	if strings.HasPrefix(text, "=== ") { // RUN, PAUSE, CONT, NAME
		return
	}
	b := p.output[test]
	if b == nil {
		b = &strings.Builder{}
		p.output[test] = b
		p.order = append(p.order, test)
	}
	b.WriteString(text)
}

func (r *report) endTest(p *pkg, ev event) {
	p.tests++
	switch ev.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
	case "fail":
		r.failed++
		p.failed = true
		return
	}
	delete(p.output, ev.Test)
}

func (r *report) endPackage(name string, p *pkg, ev event) {
	r.ended++
	r.running = slices.DeleteFunc(r.running, func(n string) bool { return n == name })
	delete(r.packages, name)
	if ev.Action == "skip" { // no test files
		return
	}
	word := "ok  "
	if ev.Action == "fail" {
		word = "FAIL"
		r.broken++
	}
	fmt.Fprintf(r.out, "%s %s %2d/%d  %-40s %6.1fs  %d tests\n", elapsed(r.started), word, r.ended, r.expected, short(name), ev.Elapsed, p.tests)
	if ev.Action == "fail" {
		p.print(r.out)
		r.keep(name, p)
	}
}

// keep remembers a failed package for the end. A test that failed with one of
// its subtests is left out: the subtest says why.
func (r *report) keep(name string, p *pkg) {
	for _, test := range p.order {
		inSubtest := func(other string) bool { return strings.HasPrefix(other, test+"/") && p.output[other] != nil }
		if p.output[test] == nil || (test == "" && p.failed) || slices.ContainsFunc(p.order, inSubtest) {
			continue
		}
		lines := slices.Collect(strings.Lines(p.output[test].String()))
		shown := min(len(lines), shownAgain)
		r.failures = append(r.failures, strings.TrimSpace(short(name)+" "+test)+"\n    "+strings.Join(lines[:shown], "    "))
	}
}

// print shows what failed tests, and tests that never ended, wrote.
func (p *pkg) print(out io.Writer) {
	for _, test := range p.order {
		text := p.output[test]
		if text == nil || (test == "" && p.failed) {
			continue
		}
		for line := range strings.Lines(text.String()) {
			fmt.Fprint(out, "    ", line)
		}
	}
}

func (r *report) tick() {
	what := "compiling"
	if len(r.running) > 0 {
		names := make([]string, len(r.running))
		for i, name := range r.running {
			names[i] = short(name)
		}
		what = "running " + strings.Join(names, ", ")
	}
	fmt.Fprintf(r.out, "%s      %2d/%d  %s …\n", elapsed(r.started), r.ended, r.expected, what)
}

// finish prints the totals, after them once more what failed, for who sees the
// end of a log only, and says whether everything passed. A package that never
// ended is a failure, and so is a run without a test.
func (r *report) finish() bool {
	for _, name := range r.running {
		fmt.Fprintf(r.out, "%s FAIL        %s did not end\n", elapsed(r.started), short(name))
		r.packages[name].print(r.out)
		r.keep(name, r.packages[name])
		r.broken++
	}
	if r.broken > r.failed { // packages that did not compile, or ended without naming a test
		r.failed = r.broken
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	for _, failure := range r.failures {
		fmt.Fprintf(r.out, "FAIL %s\n", strings.TrimRight(failure, "\n"))
	}
	return r.failed == 0 && r.passed > 0
}

// short is a package's path inside the module.
func short(name string) string {
	const module = "github.com/oxbow-jobs/oxbow"
	if name == module {
		return "."
	}
	return strings.TrimPrefix(name, module+"/")
}
