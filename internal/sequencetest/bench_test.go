package sequencetest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/sequencetest/ent"
	"github.com/entcounter/entcounter/internal/testdb"
)

const (
	// benchClients create at the same time.
	benchClients = 8
	// benchTurn is how long they do so in one way before it is the next one's turn.
	benchTurn = 250 * time.Millisecond
)

// BenchmarkCreate compares creates with and without a sequence: alone, where the
// sequence makes one statement a transaction of four, and in a transaction of the
// caller's; in one scope, which all clients wait for, and in one for each client. The
// ways take turns, so that what else the machine does meets all of them. It reports
// the median of creates per second without a sequence, and the medians of what is left
// of it with one.
//
//	go run ./internal/testdb/with -- go test ./internal/sequencetest -run NONE -bench . -benchtime 20x
func BenchmarkCreate(b *testing.B) {
	for _, kind := range testdb.Kinds {
		b.Run(string(kind), func(b *testing.B) {
			db := testdb.New(b, kind)
			db.DSN = db.WithParams(writerFirst(db))
			pool := db.DB(b)
			pool.SetMaxOpenConns(benchClients)
			pool.SetMaxIdleConns(benchClients)
			client := ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, pool)))
			ctx := context.Background()
			if err := client.Schema.Create(ctx); err != nil {
				b.Fatal(err)
			}
			plain := func(c *ent.Client, scope int, title string) error {
				return c.Note.Create().SetProjectID(scope).SetTitle(title).Exec(ctx)
			}
			numbered := func(c *ent.Client, scope int, title string) error {
				return c.NumberedNote.Create().SetProjectID(scope).SetTitle(title).Exec(ctx)
			}
			inTx := func(create func(*ent.Client, int, string) error) func(*ent.Client, int, string) error {
				return func(c *ent.Client, scope int, title string) error {
					tx, err := c.Tx(ctx)
					if err != nil {
						return err
					}
					if err := create(tx.Client(), scope, title); err != nil {
						_ = tx.Rollback()
						return err
					}
					return tx.Commit()
				}
			}
			ways := []struct {
				name   string
				scopes int
				create func(*ent.Client, int, string) error
			}{
				{"alone", 1, plain},
				{"alone,1-scope", 1, numbered},
				{"alone,8-scopes", benchClients, numbered},
				{"tx", 1, inTx(plain)},
				{"tx,1-scope", 1, inTx(numbered)},
				{"tx,8-scopes", benchClients, inTx(numbered)},
			}
			var titles atomic.Int64
			// turn returns creates per second.
			turn := func(scopes int, create func(*ent.Client, int, string) error) float64 {
				var done atomic.Int64
				errs := make(chan error, benchClients)
				started := time.Now()
				for i := range benchClients {
					go func() {
						for time.Since(started) < benchTurn {
							if err := create(client, 1+i%scopes, fmt.Sprint(titles.Add(1))); err != nil {
								errs <- err
								return
							}
							done.Add(1)
						}
						errs <- nil
					}()
				}
				for range benchClients {
					if err := <-errs; err != nil {
						b.Fatal(err)
					}
				}
				return float64(done.Load()) / time.Since(started).Seconds()
			}
			speeds := make([][]float64, len(ways))
			for b.Loop() {
				for i, way := range ways {
					speeds[i] = append(speeds[i], turn(way.scopes, way.create))
				}
			}
			for i, way := range ways {
				if i%3 == 0 {
					b.ReportMetric(median(speeds[i]), way.name+"/s")
					continue
				}
				ratios := make([]float64, len(speeds[i]))
				for round := range ratios {
					ratios[round] = speeds[i][round] / speeds[i-i%3][round]
				}
				b.ReportMetric(median(ratios), way.name)
			}
			b.ReportMetric(0, "ns/op") // the turns' own length
		})
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
