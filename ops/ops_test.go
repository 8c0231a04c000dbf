// Package ops_test holds the alert rules and the dashboard against the metrics that are
// exported.
package ops_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/entcounter/counterprom"
	"github.com/prometheus/client_golang/prometheus"
)

// promtool finds the program that internal/testdb/install.sh installs.
func promtool(t *testing.T) string {
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache := os.Getenv("ENTCOUNTER_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(home, ".cache", "entcounter")
	}
	path := filepath.Join(cache, "prometheus", "promtool")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("there is no promtool, run make install: %v", err)
	}
	return path
}

func TestAlerts(t *testing.T) {
	for _, args := range [][]string{
		{"check", "rules", "--lint-fatal", "alerts.yml"},
		{"test", "rules", "alerts_test.yml"},
	} {
		if out, err := exec.Command(promtool(t), args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	rules, tests := read(t, "alerts.yml"), read(t, "alerts_test.yml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) == 0 {
		t.Error("no alerts")
	}
	for _, alert := range alerts {
		if n := strings.Count(tests, "alertname: "+alert[1]+"\n"); n < 2 {
			t.Errorf("%s is tested %d times: it fires, and does not", alert[1], n)
		}
	}
}

var metricName = regexp.MustCompile(`\bentcounter_[a-z_]+`)

// Rules and dashboard use no metric that is not exported, and the dashboard shows all.
func TestMetrics(t *testing.T) {
	exported := make(map[string]bool)
	descs := make(chan *prometheus.Desc)
	go func() {
		counterprom.NewCollector([]*entcounter.Handle{}).Describe(descs)
		close(descs)
	}()
	for desc := range descs {
		exported[metricName.FindString(desc.String())] = true
	}
	if len(exported) < 10 {
		t.Fatalf("exported: %v", exported)
	}
	shown := make(map[string]bool)
	for _, file := range []string{"alerts.yml", "alerts_test.yml", "grafana.json"} {
		for _, name := range metricName.FindAllString(read(t, file), -1) {
			name = strings.TrimSuffix(name, "_bucket")
			if !exported[name] {
				t.Errorf("%s uses %s, which is not exported", file, name)
			}
			shown[name] = shown[name] || file == "grafana.json"
		}
	}
	for name := range exported {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}

func TestDashboard(t *testing.T) {
	var dashboard struct {
		Title, UID string
		Panels     []struct {
			ID      int
			Title   string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.Title == "" || dashboard.UID == "" || len(dashboard.Panels) == 0 {
		t.Errorf("%+v", dashboard)
	}
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i, p := range dashboard.Panels {
		if p.ID != i+1 || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %+v", p)
		}
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$counter", ".*").Replace(target.Expr)
			rules.WriteString("      - record: panel:" + strings.Repeat("x", i+1) + "\n        expr: '" + expr + "'\n")
		}
	}
	// A rule is where promtool checks an expression.
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool(t), "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("expressions of the dashboard: %v\n%s", err, out)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
