package counterotel_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"entgo.io/ent/dialect/sql"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/entcounter/counterotel"
	"github.com/entcounter/entcounter/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

func open(t *testing.T, db *testdb.Database) *ent.Client {
	t.Helper()
	client := ent.NewClient(ent.Driver(sql.OpenDB(db.Dialect, db.DB(t))))
	if err := client.Schema.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	dataset := client.Dataset.Create().SetName("d").SaveX(t.Context())
	for _, path := range []string{"a", "b", "c"} {
		client.File.Create().SetDatasetID(dataset.ID).SetPath(path).SetSize(10).SaveX(t.Context())
	}
	return client
}

func TestMetrics(t *testing.T) {
	client := open(t, testdb.New(t, testdb.SQLite))
	reader := metric.NewManualReader()
	metrics, err := counterotel.NewMetrics(client.Counters(), metric.NewMeterProvider(metric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	values := func() map[string]float64 {
		t.Helper()
		var found metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &found); err != nil {
			t.Fatal(err)
		}
		values := make(map[string]float64)
		for _, scope := range found.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Gauge[float64]:
					values[m.Name] = data.DataPoints[0].Value
				case metricdata.Sum[float64]:
					values[m.Name] = data.DataPoints[0].Value
				case metricdata.Histogram[float64]:
					values[m.Name] = float64(data.DataPoints[0].Count)
				case metricdata.Sum[int64]:
					for _, p := range data.DataPoints {
						result, _ := p.Attributes.Value("entcounter.result")
						counter, _ := p.Attributes.Value("entcounter.counter")
						values[m.Name+" "+counter.AsString()+" "+result.AsString()] = float64(p.Value)
					}
				}
			}
		}
		return values
	}
	before := values()
	if before["entcounter.journal.rows"] != 3 || before["entcounter.journal.deepest_key"] != 3 || before["entcounter.built"] != 1 {
		t.Errorf("before a fold: %v", before)
	}
	if _, ok := before["entcounter.fold.age"]; ok {
		t.Error("a fold that never was has an age")
	}
	ctx, cancel := context.WithCancel(t.Context())
	worker := entcounter.NewWorker(client.Counters(), entcounter.WorkerOptions{MinInterval: time.Millisecond, MaxInterval: time.Millisecond, OnCycle: func(c entcounter.Cycle) {
		metrics.OnCycle(c)
		if c.Folded.Rows == 0 && c.Err == nil {
			cancel()
		}
	}, Logger: slog.New(slog.DiscardHandler)})
	if err := worker.Run(ctx); err != nil {
		t.Fatal(err)
	}
	after := values()
	if after["entcounter.journal.rows"] != 0 || after["entcounter.folded"] != 3 || after["entcounter.keys"] != 1 || after["entcounter.fold.speed"] <= 0 ||
		after["entcounter.worker.cycles File folded"] != 1 || after["entcounter.worker.fold.duration"] != 1 {
		t.Errorf("after a fold: %v", after)
	}
	if err := metrics.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := values()["entcounter.journal.rows"]; ok {
		t.Error("observed after Close")
	}
}

func TestTracer(t *testing.T) {
	var (
		client   = open(t, testdb.New(t, testdb.SQLite))
		recorder = tracetest.NewSpanRecorder()
		provider = trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
		ctx      = entcounter.WithTracer(t.Context(), counterotel.NewTracer(provider))
	)
	if _, err := client.FileCounters.Fold(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.FileCounters.Fold(ctx); err != nil { // of nothing
		t.Fatal(err)
	}
	if _, err := client.FileCounters.Rebuild(ctx, filecounters.ScopeOf(1)); err != nil {
		t.Fatal(err)
	}
	for range client.FileCounters.Verify(ctx, filecounters.Scope{}) {
		t.Error("drift")
	}
	if err := client.FileCounters.DeleteScope(ctx, filecounters.ScopeOf(1)); err != nil {
		t.Fatal(err)
	}
	if err := client.FileCounters.DeleteScope(ctx, filecounters.Scope{}); err == nil {
		t.Fatal("deleted everything")
	}
	drifting := 0
	for _, err := range client.FileCounters.Verify(ctx, filecounters.Scope{}) {
		if err != nil {
			t.Fatal(err)
		}
		drifting++
	}
	type span struct {
		name       string
		rows, keys int64
		scope      int64
		failed     bool
	}
	var got []span
	for _, s := range recorder.Ended() {
		found := span{name: s.Name(), failed: s.Status().Code == codes.Error}
		for _, a := range s.Attributes() {
			switch a.Key {
			case "entcounter.rows":
				found.rows = a.Value.AsInt64()
			case "entcounter.keys":
				found.keys = a.Value.AsInt64()
			case "entcounter.scope_columns":
				found.scope = a.Value.AsInt64()
			case "entcounter.counter":
				if a.Value.AsString() != "File" {
					t.Errorf("of counter %s", a.Value.AsString())
				}
			}
		}
		got = append(got, found)
	}
	want := []span{
		{"entcounter fold File", 3, 1, 0, false},
		{"entcounter rebuild File", 0, 0, 1, false},
		{"entcounter verify File", 0, 0, 0, false},
		{"entcounter delete scope File", 0, 0, 1, false},
		{"entcounter delete scope File", 0, 0, 0, true},
		{"entcounter verify File", 0, 1, 0, false},
	}
	if drifting != 1 || len(got) != len(want) {
		t.Fatalf("%d drifting, spans %+v", drifting, got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("span %+v, want %+v", got[i], want[i])
		}
	}
}
