package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/integration/ent"
	"github.com/entcounter/entcounter/internal/integration/ent/vote"
	"github.com/entcounter/entcounter/internal/testdb"
)

// voting are mutations that may be one statement each, and counted by its row count.
var voting = map[string]func(context.Context, *ent.Client) error{
	"create": func(ctx context.Context, c *ent.Client) error { return c.Vote.Create().SetTopic("a").Exec(ctx) },
	"bulk create": func(ctx context.Context, c *ent.Client) error {
		return c.Vote.CreateBulk(c.Vote.Create().SetTopic("a"), c.Vote.Create().SetTopic("b")).Exec(ctx)
	},
	"update": func(ctx context.Context, c *ent.Client) error {
		return c.Vote.Update().Where(vote.Topic("a")).SetTopic("b").Exec(ctx)
	},
	"delete": func(ctx context.Context, c *ent.Client) error {
		_, err := c.Vote.Delete().Where(vote.Topic("a")).Exec(ctx)
		return err
	},
}

// A change that cannot be journalled is undone, before the connection is used again:
// what follows on it may commit.
func TestChangeThatCannotBeJournalled(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		no(w, w.client.Vote.CreateBulk(w.client.Vote.Create().SetTopic("a"), w.client.Vote.Create().SetTopic("a")).Exec(ctx))
		w.pool.SetMaxOpenConns(1)
		rename := func(from, to string) {
			w.Helper()
			must(w.pool.ExecContext(ctx, "ALTER TABLE "+from+" RENAME TO "+to))(w)
		}
		for name, mutation := range voting {
			before := must(w.client.Vote.Query().IDs(ctx))(w)
			rename("vote_counter_journal", "gone")
			if err := mutation(ctx, w.client); err == nil || !strings.Contains(err.Error(), "vote_counter_journal") {
				w.Errorf("%s without a journal: %v", name, err)
			}
			rename("gone", "vote_counter_journal")
			if after := must(w.client.Vote.Query().IDs(ctx))(w); len(after) != len(before) {
				w.Errorf("%s, which failed, has left %d rows of %d", name, len(after), len(before))
			}
			no(w, mutation(ctx, w.client))
			w.exact(ctx)
			no(w, voting["bulk create"](ctx, w.client))
		}
	})
}

// The same, for a change whose statement is killed while it waits to be journalled.
func TestKilledBeforeJournal(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		if w.db.Dialect != dialect.MySQL {
			return // a cancelled query is an error like any other there
		}
		no(w, voting["bulk create"](ctx, w.client))
		w.pool.SetMaxOpenConns(1)
		lock := must(w.oracle.Conn(ctx))(w)
		defer func() { no(w, lock.Close()) }()
		for name, mutation := range voting {
			must(lock.ExecContext(ctx, "LOCK TABLES vote_counter_journal WRITE"))(w)
			failed := make(chan error)
			go func() { failed <- mutation(ctx, w.client) }()
			w.kill(ctx, "vote_counter_journal")
			if err := <-failed; err == nil || !strings.Contains(err.Error(), "1317") {
				w.Errorf("%s: %v, want that the query was interrupted", name, err)
			}
			must(lock.ExecContext(ctx, "UNLOCK TABLES"))(w)
			w.exact(ctx)
			no(w, mutation(ctx, w.client))
			w.exact(ctx)
			no(w, voting["bulk create"](ctx, w.client))
		}
	})
}

// kill kills the query that waits for a lock of a table and mentions a text.
func (w *world) kill(ctx context.Context, text string) {
	w.Helper()
	for range 1000 {
		var id int
		err := w.oracle.QueryRowContext(ctx, "SELECT id FROM information_schema.processlist WHERE state LIKE '%lock%' AND info LIKE ? AND id <> CONNECTION_ID()", "%"+text+"%").Scan(&id)
		if err == nil {
			must(w.oracle.ExecContext(ctx, fmt.Sprint("KILL QUERY ", id)))(w)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.Fatal("no query waits")
}

// Nothing but the number of statements differs where a client's mutations cannot be
// one statement: through the debug driver, with session variables, or in Oracle's mode
// of MariaDB.
func TestNotOneStatement(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		for name, mutation := range voting {
			no(w, mutation(ctx, w.client.Debug()))
			w.exact(ctx)
			if w.db.Dialect == dialect.MySQL {
				no(w, mutation(entsql.WithVar(ctx, "@tenant", name), w.client))
				w.exact(ctx)
			}
		}
	})
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		if db.Kind != testdb.MariaDB {
			return
		}
		w := newWorld(t, db, map[string]string{"sql_mode": "'STRICT_TRANS_TABLES,ORACLE'"})
		for _, mutation := range voting {
			no(w, mutation(t.Context(), w.client))
			w.exact(t.Context())
		}
	})
}
