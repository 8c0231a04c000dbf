package counterprom_test

import (
	"context"
	stdsql "database/sql"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/entcounter/counterprom"
	"github.com/entcounter/entcounter/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

func open(t *testing.T, db *testdb.Database) (*ent.Client, *stdsql.DB) {
	t.Helper()
	pool := db.DB(t)
	client := ent.NewClient(ent.Driver(sql.OpenDB(db.Dialect, pool)))
	if err := client.Schema.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return client, pool
}

func TestCollector(t *testing.T) {
	page, err := os.ReadFile("../../docs/running.md")
	if err != nil {
		t.Fatal(err)
	}
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		client, pool := open(t, db)
		collector := counterprom.NewCollector(client.Counters())
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(collector)
		values := func() map[string]float64 {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			values := make(map[string]float64)
			for _, family := range families {
				for _, m := range family.GetMetric() {
					name := family.GetName()
					for _, label := range m.GetLabel() {
						if label.GetName() != "counter" {
							name += " " + label.GetValue()
						} else if label.GetValue() != "File" {
							t.Errorf("%s of %s", name, label.GetValue())
						}
					}
					values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
			return values
		}
		want := func(got map[string]float64, want map[string]float64) {
			t.Helper()
			for name, v := range want {
				if n, ok := got[name]; !ok || n != v {
					t.Errorf("%s is %v (there: %t), want %v", name, n, ok, v)
				}
			}
		}

		dataset := client.Dataset.Create().SetName("d").SaveX(t.Context())
		for _, path := range []string{"a", "b", "c"} {
			client.File.Create().SetDatasetID(dataset.ID).SetPath(path).SetSize(10).SaveX(t.Context())
		}
		before := values()
		want(before, map[string]float64{
			"entcounter_up": 1, "entcounter_journal_rows": 3, "entcounter_journal_deepest_key_rows": 3, "entcounter_keys": 0,
			"entcounter_folded_rows_total": 0, "entcounter_negative_keys": 0, "entcounter_built": 1, "entcounter_paused": 0,
		})
		for name, kind := range map[string]string{"entcounter_innodb_history_list_length": dialect.MySQL, "entcounter_postgres_dead_rows": dialect.Postgres} {
			if _, ok := before[name]; ok != (db.Dialect == kind) {
				t.Errorf("%s is there: %t", name, ok)
			}
		}
		if _, ok := before["entcounter_last_fold_timestamp_seconds"]; ok {
			t.Error("a fold that never was has a time")
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		worker := entcounter.NewWorker(client.Counters(), entcounter.WorkerOptions{MinInterval: time.Millisecond, MaxInterval: time.Millisecond, OnCycle: func(c entcounter.Cycle) {
			collector.OnCycle(c)
			if c.Folded.Rows == 0 && c.Err == nil {
				cancel()
			}
		}, Logger: slog.New(slog.DiscardHandler)})
		go func() { done <- worker.Run(ctx) }()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		after := values()
		want(after, map[string]float64{
			"entcounter_journal_rows": 0, "entcounter_journal_oldest_seconds": 0, "entcounter_keys": 1, "entcounter_folded_rows_total": 3,
			"entcounter_worker_cycles_total folded": after["entcounter_worker_fold_duration_seconds"], "entcounter_worker_batch_rows": entcounter.DefaultFoldBatch,
		})
		for name := range after {
			name, _, _ := strings.Cut(name, " ")
			if !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`"+strings.TrimPrefix(name, "entcounter_")+"`") {
				t.Errorf("docs/running.md does not tell of %s", name)
			}
		}
		if at := after["entcounter_last_fold_timestamp_seconds"]; time.Since(time.UnixMicro(int64(at*1e6))).Abs() > time.Minute {
			t.Errorf("the last fold was at %v", at)
		}
		if after["entcounter_fold_rows_per_second"] <= 0 || after["entcounter_worker_cycles_total idle"] < 1 || after["entcounter_worker_cycles_total folded"] < 1 {
			t.Errorf("after folds: %v", after)
		}
		collector.OnCycle(entcounter.Cycle{Counter: "File", Err: errors.New("boom"), Pause: time.Second})
		collector.OnCycle(entcounter.Cycle{Counter: "File", Skipped: entcounter.ErrPaused, Pause: time.Second})
		collector.OnCycle(entcounter.Cycle{Counter: "File", Skipped: entcounter.ErrFoldedElsewhere, Pause: 2 * time.Second})
		want(values(), map[string]float64{
			"entcounter_worker_cycles_total failed": 1, "entcounter_worker_cycles_total paused": 1, "entcounter_worker_cycles_total elsewhere": 1,
			"entcounter_worker_pause_seconds": 2,
		})

		if _, err := pool.ExecContext(t.Context(), "UPDATE file_counters SET count = -1"); err != nil {
			t.Fatal(err)
		}
		want(values(), map[string]float64{"entcounter_negative_keys": 1})
		if err := client.Counters()[0].Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(values(), map[string]float64{"entcounter_paused": 1})

		if _, err := pool.ExecContext(t.Context(), "DROP TABLE file_counter_journal"); err != nil {
			t.Fatal(err)
		}
		broken := values()
		want(broken, map[string]float64{"entcounter_up": 0})
		if _, ok := broken["entcounter_journal_rows"]; ok {
			t.Error("a journal that is not there has rows")
		}
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

// A database that does not answer holds a collection up for no longer than it may.
func TestTimeout(t *testing.T) {
	client, pool := open(t, testdb.New(t, testdb.SQLite))
	pool.SetMaxOpenConns(1)
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	started := time.Now()
	err = testutil.CollectAndCompare(counterprom.NewCollector(client.Counters(), counterprom.WithTimeout(100*time.Millisecond)), strings.NewReader(`
# HELP entcounter_up Whether the counter's health could be read: 1 or 0.
# TYPE entcounter_up gauge
entcounter_up{counter="File"} 0
`), "entcounter_up")
	if err != nil || time.Since(started) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(started), err)
	}
}
