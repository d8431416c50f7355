package harness

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
)

// Admin runs an admin command with --json, decodes what it printed into doc
// (unless nil) and returns the exit code.
func (s *Stage) Admin(doc any, args ...string) int {
	s.t.Helper()
	args = append(slices.Clone(args), "--json", "--database-url", s.URL)
	if s.DB.Schema() != "" {
		args = append(args, "--schema", s.DB.Schema())
	}
	p := s.start("admin", "admin", "", args)
	code := p.Wait()
	if doc != nil {
		if err := json.Unmarshal([]byte(p.Stdout()), doc); err != nil {
			s.t.Fatalf("read what admin %v printed: %v in %q\n%s", args, err, p.Stdout(), p.Stderr())
		}
	}
	return code
}

var servedAt = regexp.MustCompile(`"addr":"([^"]+)"`)

// Ready asks a worker's /readyz and returns its verdict and what is red.
func (p *Process) Ready() (bool, map[string]string) {
	p.stage.t.Helper()
	addr := servedAt.FindStringSubmatch(p.LogLine("serving health and metrics"))
	if addr == nil {
		return false, map[string]string{"http": "not served yet"}
	}
	resp, err := http.Get("http://" + addr[1] + "/readyz")
	if err != nil {
		return false, map[string]string{"http": err.Error()}
	}
	defer func() { _ = resp.Body.Close() }()
	var body struct {
		Ready  bool
		Checks []struct {
			Name, Error string
			OK          bool
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return false, map[string]string{"http": err.Error()}
	}
	red := map[string]string{}
	for _, check := range body.Checks {
		if !check.OK {
			red[check.Name] = check.Error
		}
	}
	return body.Ready && resp.StatusCode == http.StatusOK, red
}
