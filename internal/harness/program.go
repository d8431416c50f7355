package harness

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/oxbow-jobs/oxbow/internal/faultpoint"
)

const (
	programVariable = "OXBOW_HARNESS_PROGRAM"
	faultVariable   = "OXBOW_HARNESS_FAULT"
)

// parallel is how many tests run at once unless -parallel says otherwise. They
// wait for leases most of the time, so it may be more than there are cores.
const parallel = "8"

// Main is a test package's TestMain. In the processes that the package's tests
// start it is the program of that name instead.
func Main(m *testing.M, programs map[string]func() int) {
	if name := os.Getenv(programVariable); name != "" {
		os.Exit(runProgram(name, programs))
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", parallel)
	}
	os.Exit(m.Run())
}

func runProgram(name string, programs map[string]func() int) int {
	if err := faultpoint.Arm(os.Getenv(faultVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	go endWithParent()
	run, ok := programs[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "harness: no program is called %q\n", name)
		return 2
	}
	return run()
}

// endWithParent ends the process when the test process is gone, however that
// ended: its standard input is a pipe that only the test holds open.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(3)
}
