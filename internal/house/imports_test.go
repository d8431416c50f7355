package house

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/oxbow-jobs/oxbow"

// floors is the house from the ground up. A pattern is matched as path.Match
// does; the first that matches counts, so exceptions stand before their rule.
var floors = []struct {
	pattern string
	floor   int
}{
	{"dbtx", 0},
	{"internal/dbtest", 3},
	{"internal/lab", 6},
	{"internal/bench", 7},
	{"internal/*", 1},
	{"migrations", 2},
	{"outbox", 3},
	{"sideeffect", 3},
	{"inbox", 4},
	{"jobs", 5},
	{"rabbitmq", 5},
	{"engine", 6},
	{"examples/*/*", 6},
	{"operate", 7},
	{"cli", 9},
	{"cmd/*", 10},
	{"examples/*", 10},
}

// denied are imports that the floors would allow.
var denied = []struct{ from, to, why string }{
	{"engine", module + "/rabbitmq", "the engine publishes through outbox.Publisher"},
	{"operate", module + "/examples/*", "operators' code knows no app"},
	{"*", module + "/internal/dbtest", "only tests may"},
	{"*", module + "/internal/faultproxy", "only tests may"},
	{"*", module + "/internal/brokertest", "only tests may"},
	{"*", module + "/internal/harness", "only tests may"},
}

// amqp is imported by one package, so that a broker can be replaced.
const amqp = "github.com/rabbitmq/amqp091-go"

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	imports := readImports(t, "../..")
	require.Greater(t, len(imports), 5)
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		for _, to := range imports[from] {
			if reason := objection(from, to); reason != "" {
				t.Errorf("%s imports %s: %s", from, to, reason)
			}
		}
	}
}

func TestObjections(t *testing.T) {
	t.Parallel()
	for _, wrong := range [][2]string{
		{"outbox", module + "/engine"},
		{"outbox", module + "/sideeffect"},
		{"dbtx", module + "/internal/outcome"},
		{"engine", module + "/rabbitmq"},
		{"jobs", module + "/cli"},
		{"operate", module + "/internal/dbtest"},
		{"attic", module + "/dbtx"},
		{"engine", amqp},
	} {
		require.NotEmpty(t, objection(wrong[0], wrong[1]), wrong)
	}
	for _, fine := range [][2]string{
		{"outbox", module + "/dbtx"},
		{"internal/claim", module + "/internal/outcome"},
		{"cmd/worker", module + "/cli"},
		{"rabbitmq", amqp},
		{"engine", "github.com/riverqueue/river"},
	} {
		require.Empty(t, objection(fine[0], fine[1]), fine)
	}
}

// objection says what is wrong with an import, or nothing.
func objection(from, to string) string {
	if to == amqp && from != "rabbitmq" {
		return "only rabbitmq may"
	}
	if !strings.HasPrefix(to, module+"/") {
		return ""
	}
	for _, d := range denied {
		fromMatches, _ := path.Match(d.from, from)
		toMatches, _ := path.Match(d.to, to)
		if (fromMatches || d.from == "*") && toMatches {
			return d.why
		}
	}
	fromFloor, toFloor := floorOf(from), floorOf(strings.TrimPrefix(to, module+"/"))
	switch {
	case fromFloor < 0 || toFloor < 0:
		return "a package without a floor: give it one in this test"
	case toFloor > fromFloor:
		return fmt.Sprintf("it stands above (floor %d, from floor %d)", toFloor, fromFloor)
	case toFloor == fromFloor && toFloor != 1: // helpers in internal may use each other
		return "it stands beside it"
	}
	return ""
}

func floorOf(pkg string) int {
	for _, f := range floors {
		if matches, _ := path.Match(f.pattern, pkg); matches {
			return f.floor
		}
	}
	return -1
}

// readImports returns what the module's non-test files import, by package.
func readImports(t *testing.T, root string) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name != ".." && strings.HasPrefix(name, ".") || name == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		pkg = filepath.ToSlash(pkg)
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if !slices.Contains(imports[pkg], imported) {
				imports[pkg] = append(imports[pkg], imported)
			}
		}
		return nil
	})
	require.NoError(t, err)
	return imports
}
