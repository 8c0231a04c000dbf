package sequencetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/sequencetest/ent"
	"github.com/entcounter/entcounter/internal/testdb"
)

// benchClients create at the same time.
const benchClients = 8

// BenchmarkCreate compares creates with and without a sequence: alone, where the
// sequence makes one statement a transaction of four, and in a transaction of the
// caller's; in one scope, which all clients wait for, and in one for each client.
//
//	go run ./internal/testdb/with -- go test ./internal/sequencetest -run NONE -bench . -benchtime 3s
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
			round := 0
			for _, way := range []struct {
				name   string
				scopes int
				create func(*ent.Client, int, string) error
			}{
				{"alone/without", 1, plain},
				{"alone/one scope", 1, numbered},
				{"alone/own scopes", benchClients, numbered},
				{"in a transaction/without", 1, inTx(plain)},
				{"in a transaction/one scope", 1, inTx(numbered)},
				{"in a transaction/own scopes", benchClients, inTx(numbered)},
			} {
				b.Run(way.name, func(b *testing.B) {
					var done atomic.Int64
					round++
					errs := make(chan error, benchClients)
					b.ResetTimer()
					for i := range benchClients {
						go func() {
							for {
								n := done.Add(1)
								if n > int64(b.N) {
									errs <- nil
									return
								}
								if err := way.create(client, 1000*round+i%way.scopes, fmt.Sprint(n)); err != nil {
									errs <- err
									return
								}
							}
						}()
					}
					for range benchClients {
						if err := <-errs; err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}
