package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
)

// partition divides the journal of files by hash of the id.
func partition(tb testing.TB, db *testdb.Database, n int) {
	tb.Helper()
	stmts := []string{fmt.Sprintf("ALTER TABLE file_counter_journal PARTITION BY HASH (id) PARTITIONS %d", n)}
	if db.Kind == testdb.Postgres {
		stmts = []string{
			"ALTER TABLE file_counter_journal RENAME TO old_journal",
			"CREATE TABLE file_counter_journal (LIKE old_journal INCLUDING DEFAULTS INCLUDING IDENTITY) PARTITION BY HASH (id)",
			"ALTER TABLE file_counter_journal ADD PRIMARY KEY (id)",
			"CREATE INDEX journal_by_key ON file_counter_journal (dataset_id, status)",
			"DROP TABLE old_journal",
		}
		for i := range n {
			stmts = append(stmts, fmt.Sprintf("CREATE TABLE file_counter_journal_p%d PARTITION OF file_counter_journal FOR VALUES WITH (MODULUS %d, REMAINDER %d)", i, n, i))
		}
	}
	for _, stmt := range stmts {
		if _, err := db.DB(tb).Exec(stmt); err != nil {
			tb.Fatalf("%s: %v", stmt, err)
		}
	}
}

// exact makes sure that the counters say what a recount says.
func exact(tb testing.TB, client *ent.Client) {
	tb.Helper()
	for drift, err := range client.FileCounters.Verify(tb.Context(), filecounters.Scope{}) {
		tb.Errorf("drift %+v, error %v", drift, err)
	}
}

// Counts stay exact while a partitioned journal is written and folded.
func TestPartitionedJournal(t *testing.T) {
	for _, kind := range []testdb.Kind{testdb.MariaDB, testdb.MySQL} {
		t.Run(string(kind), func(t *testing.T) {
			db := testdb.New(t, kind)
			client := ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, db.DB(t))))
			if err := client.Schema.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
			partition(t, db, 4)
			d := client.Dataset.Create().SetName("d").SaveX(t.Context())
			working, stop := context.WithCancel(t.Context())
			var folding, writing sync.WaitGroup
			folded := 0
			folding.Go(func() {
				for working.Err() == nil {
					r, err := client.FileCounters.Fold(t.Context(), entcounter.WithBatch(50))
					if err != nil {
						t.Error(err)
						return
					}
					folded += r.Rows
				}
			})
			for w := range 8 {
				writing.Go(func() {
					for i := range 40 {
						f := client.File.Create().SetDataset(d).SetPath(fmt.Sprint(w, i)).SetSize(int64(i)).SaveX(t.Context())
						if i%2 == 0 {
							f.Update().SetStatus(file.StatusCopied).ExecX(t.Context())
						}
						if i%5 == 0 {
							client.File.DeleteOne(f).ExecX(t.Context())
						}
					}
				})
			}
			writing.Wait()
			exact(t, client)
			stop()
			folding.Wait()
			if folded == 0 {
				t.Error("nothing was folded beside the writers")
			}
			total, err := client.FileCounters.Total(t.Context(), filecounters.Scope{DatasetID: &d.ID})
			if err != nil || total.Count != 8*32 {
				t.Errorf("%d files, error %v", total.Count, err)
			}
		})
	}
}

// BenchmarkPartitions measures what it costs and gains to partition a journal: transactions of 8 writers beside a
// worker that folds, reads with a journal of 20,000 rows, and folding them.
func BenchmarkPartitions(b *testing.B) {
	const datasets, files, backlog, duration = 64, 20, 20_000, 5 * time.Second
	statuses := []file.Status{file.StatusNew, file.StatusCopying, file.StatusCopied, file.StatusFailed}
	for _, kind := range []testdb.Kind{testdb.MariaDB, testdb.MySQL, testdb.Postgres} {
		for round := range 2 {
			for _, n := range []int{0, 8} {
				b.Run(fmt.Sprintf("%s/partitions=%d/round=%d", kind, n, round), func(b *testing.B) {
					ctx := b.Context()
					db := testdb.New(b, kind)
					pool := db.DB(b)
					pool.SetMaxIdleConns(16)
					client := ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, pool)))
					if err := client.Schema.Create(ctx); err != nil {
						b.Fatal(err)
					}
					if n > 0 {
						partition(b, db, n)
					}
					ids := make([][]int, datasets)
					for i := range ids {
						d := client.Dataset.Create().SetName(fmt.Sprint(i)).SaveX(ctx)
						var creates []*ent.FileCreate
						for j := range files {
							creates = append(creates, client.File.Create().SetDataset(d).SetPath(fmt.Sprint(j)).SetSize(int64(j)))
						}
						for _, f := range client.File.CreateBulk(creates...).SaveX(ctx) {
							ids[i] = append(ids[i], f.ID)
						}
					}
					working, stop := context.WithCancel(ctx)
					var (
						wg   sync.WaitGroup
						done atomic.Int64
						end  = time.Now().Add(duration)
					)
					wg.Go(func() { _ = entcounter.NewWorker(client.Counters(), entcounter.WorkerOptions{}).Run(working) })
					var writers sync.WaitGroup
					for w := range 8 {
						writers.Go(func() {
							for i := 0; time.Now().Before(end); i++ {
								mine := ids[(i*8+w)%datasets]
								if err := client.File.Update().Where(file.IDIn(mine[:5]...)).SetStatus(statuses[(i/8+1)%4]).Exec(ctx); err != nil {
									b.Error(err)
									return
								}
								done.Add(1)
							}
						})
					}
					writers.Wait()
					stop()
					wg.Wait()
					b.ReportMetric(float64(done.Load())/duration.Seconds(), "tx/s")

					for {
						r, err := client.FileCounters.Fold(ctx)
						if err != nil {
							b.Fatal(err)
						}
						if r.Rows == 0 {
							break
						}
					}
					now := "UTC_TIMESTAMP(6)"
					if kind == testdb.Postgres {
						now = "clock_timestamp()"
					}
					for i := 0; i < backlog; i += 500 {
						var rows []string
						for j := range 500 {
							k := i + j
							rows = append(rows, fmt.Sprintf("(%d, '%s', 0, 0, %s)", 1+k%datasets, statuses[k/datasets%4], now))
						}
						if _, err := pool.Exec("INSERT INTO file_counter_journal (dataset_id, status, count_delta, bytes_delta, inserted_at) VALUES " + strings.Join(rows, ", ")); err != nil {
							b.Fatal(err)
						}
					}
					analyze := "ANALYZE TABLE file_counter_journal"
					if kind == testdb.Postgres {
						analyze = "VACUUM ANALYZE file_counter_journal"
					}
					if _, err := pool.Exec(analyze); err != nil {
						b.Fatal(err)
					}
					times := make([]time.Duration, 500)
					for i := range times {
						start := time.Now()
						if _, err := client.FileCounters.Read(ctx, filecounters.Key{DatasetID: 1 + i%datasets, Status: statuses[i%4]}); err != nil {
							b.Fatal(err)
						}
						times[i] = time.Since(start)
					}
					slices.Sort(times)
					b.ReportMetric(float64(times[len(times)/2].Microseconds()), "µs/read")
					start := time.Now()
					folded := 0
					for {
						r, err := client.FileCounters.Fold(ctx)
						if err != nil {
							b.Fatal(err)
						}
						if r.Rows == 0 {
							break
						}
						folded += r.Rows
					}
					b.ReportMetric(float64(folded)/time.Since(start).Seconds(), "folded/s")
					b.ReportMetric(0, "ns/op")
					exact(b, client)
				})
			}
		}
	}
}
