package upgrade

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/mysql"
	"ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/sqlite"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	entschema "entgo.io/ent/dialect/sql/schema"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
	v1 "github.com/entcounter/entcounter/internal/upgrade/v1/ent"
	v1file "github.com/entcounter/entcounter/internal/upgrade/v1/ent/file"
	v2 "github.com/entcounter/entcounter/internal/upgrade/v2/ent"
	v2file "github.com/entcounter/entcounter/internal/upgrade/v2/ent/file"
	v3 "github.com/entcounter/entcounter/internal/upgrade/v3/ent"
	v3file "github.com/entcounter/entcounter/internal/upgrade/v3/ent/file"
	v4 "github.com/entcounter/entcounter/internal/upgrade/v4/ent"
	v4document "github.com/entcounter/entcounter/internal/upgrade/v4/ent/document"
)

var (
	rowsFlag    = flag.Int("rows", 100_000, "rows of the table that the live upgrade begins with")
	writersFlag = flag.Int("writers", 8, "writers beside the live upgrade, on servers")
)

// world is a database that is migrated, and what runs on it.
type world struct {
	testing.TB
	ctx        context.Context
	db         *testdb.Database
	pool       *sql.DB
	migrations *migrate.LocalDir
	revisions  revisions
}

// newWorld returns a database that its first migration has made.
func newWorld(t *testing.T, db *testdb.Database, version string, tables []*entschema.Table) *world {
	t.Helper()
	dir, err := migrate.NewLocalDir(t.TempDir())
	no(t, err)
	w := &world{TB: t, ctx: t.Context(), db: db, pool: db.DB(t), migrations: dir}
	w.diff("init_"+version, tables)
	w.apply()
	return w
}

func no(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// driver returns a driver of a program's own. Its pool is as large as a small program's.
func (w *world) driver() *entsql.Driver {
	pool := w.db.DB(w)
	pool.SetMaxOpenConns(12)
	return entsql.OpenDB(w.db.Dialect, pool)
}

// planned are the migrations that diff has planned, by the kind of database, the name and what was there before. Most
// tests begin with the same ones.
var planned = make(map[string]string)

// diff writes the migration to a schema, as `go run ./migrate diff` does, if there is anything to do. It returns its
// text.
func (w *world) diff(name string, tables []*entschema.Table) string {
	w.Helper()
	files, err := w.migrations.Files()
	no(w, err)
	key := string(w.db.Kind) + name
	for _, f := range files {
		key += string(f.Bytes())
	}
	text, known := planned[key]
	if !known {
		var dir migrate.MemDir
		for _, f := range files {
			no(w, dir.WriteFile(f.Name(), f.Bytes()))
		}
		sum, err := dir.Checksum()
		no(w, err)
		no(w, migrate.WriteSumFile(&dir, sum))
		dev := testdb.New(w, w.db.Kind)
		atlas, err := entschema.NewMigrate(entsql.OpenDB(dev.Dialect, dev.DB(w)), entschema.WithDir(&dir),
			entschema.WithMigrationMode(entschema.ModeReplay), entschema.WithFormatter(migrate.DefaultFormatter),
			entschema.WithDropColumn(true), entschema.WithDropIndex(true))
		no(w, err)
		no(w, atlas.NamedDiff(w.ctx, name, tables...))
		all, err := dir.Files()
		no(w, err)
		for _, f := range all {
			if f.Desc() == name {
				text = string(f.Bytes())
			}
		}
		planned[key] = text
	}
	if text != "" {
		w.write(fmt.Sprintf("%d_%s.sql", len(files)+1, name), text)
	}
	return text
}

// edit appends statements to the last migration, or writes one of its own.
func (w *world) edit(name string, stmts ...string) {
	w.Helper()
	files, err := w.migrations.Files()
	no(w, err)
	file, text := fmt.Sprintf("%d_%s.sql", len(files)+1, name), ""
	if name == "" {
		last := files[len(files)-1]
		file, text = last.Name(), string(last.Bytes())
	}
	for _, stmt := range stmts {
		text += w.quoted(stmt) + ";\n"
	}
	w.write(file, text)
}

// write writes a migration and signs the folder.
func (w *world) write(file, text string) {
	w.Helper()
	no(w, os.WriteFile(filepath.Join(w.migrations.Path(), file), []byte(text), 0o600))
	sum, err := w.migrations.Checksum()
	no(w, err)
	no(w, migrate.WriteSumFile(w.migrations, sum))
}

// apply runs the migrations that the database does not have.
func (w *world) apply() {
	w.Helper()
	no(w, migrate.Validate(w.migrations))
	conn, err := w.pool.Conn(w.ctx)
	no(w, err)
	defer func() { _ = conn.Close() }()
	var drv migrate.Driver
	switch w.db.Dialect {
	case dialect.MySQL:
		drv, err = mysql.Open(conn)
	case dialect.Postgres:
		drv, err = postgres.Open(conn)
	default:
		drv, err = sqlite.Open(conn)
	}
	no(w, err)
	ex, err := migrate.NewExecutor(drv, w.migrations, &w.revisions)
	no(w, err)
	no(w, ex.ExecuteN(w.ctx, 0))
}

// revisions are what a database has of the migrations.
type revisions []*migrate.Revision

func (*revisions) Ident() *migrate.TableIdent { return &migrate.TableIdent{Name: "revisions"} }

func (r *revisions) ReadRevisions(context.Context) ([]*migrate.Revision, error) { return *r, nil }

func (r *revisions) ReadRevision(_ context.Context, version string) (*migrate.Revision, error) {
	for _, rev := range *r {
		if rev.Version == version {
			return rev, nil
		}
	}
	return nil, migrate.ErrRevisionNotExist
}

func (r *revisions) WriteRevision(ctx context.Context, rev *migrate.Revision) error {
	if err := r.DeleteRevision(ctx, rev.Version); err != nil {
		return err
	}
	*r = append(*r, rev)
	return nil
}

func (r *revisions) DeleteRevision(_ context.Context, version string) error {
	for i, rev := range *r {
		if rev.Version == version {
			*r = append((*r)[:i], (*r)[i+1:]...)
			break
		}
	}
	return nil
}

// quoted writes the quotes of MySQL as the dialect's.
func (w *world) quoted(query string) string {
	if w.db.Dialect == dialect.Postgres {
		return strings.ReplaceAll(query, "`", `"`)
	}
	return query
}

const (
	datasets = 20
	large    = 1 // the dataset that has half of all files
)

var (
	statuses = []string{"new", "copying", "copied", "failed"}
	kinds    = []string{"text", "image", "other"}
)

// fill inserts files as SQL of one's own does.
func (w *world) fill(n int) {
	w.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for n > 0 {
		var b strings.Builder
		b.WriteString("INSERT INTO files (dataset_id, status, kind, size) VALUES ")
		for i := range min(n, 5000) {
			if i > 0 {
				b.WriteString(", ")
			}
			dataset := large
			if r.IntN(2) == 0 {
				dataset = 1 + r.IntN(datasets)
			}
			fmt.Fprintf(&b, "(%d, '%s', '%s', %d)", dataset, statuses[r.IntN(4)], kinds[r.IntN(3)], r.IntN(1000))
		}
		_, err := w.pool.ExecContext(w.ctx, b.String())
		no(w, err)
		n -= min(n, 5000)
	}
}

// writes are what a program does with files.
type writes struct {
	create func(ctx context.Context, dataset int, status, kind string, size int64) error
	// move moves some files of a dataset to another status.
	move   func(ctx context.Context, ids []int, dataset int, from, to string) error
	resize func(ctx context.Context, id int, size int64) error
	remove func(ctx context.Context, id int) error
}

func writesV1(c *v1.Client) writes {
	return writes{
		create: func(ctx context.Context, dataset int, status, kind string, size int64) error {
			return c.File.Create().SetDatasetID(dataset).SetStatus(status).SetKind(kind).SetSize(size).Exec(ctx)
		},
		move: func(ctx context.Context, ids []int, dataset int, from, to string) error {
			return c.File.Update().Where(v1file.IDIn(ids...), v1file.DatasetID(dataset), v1file.Status(from)).SetStatus(to).Exec(ctx)
		},
		resize: func(ctx context.Context, id int, size int64) error {
			return c.File.Update().Where(v1file.ID(id)).SetSize(size).Exec(ctx)
		},
		remove: func(ctx context.Context, id int) error {
			_, err := c.File.Delete().Where(v1file.ID(id)).Exec(ctx)
			return err
		},
	}
}

func writesV2(c *v2.Client) writes {
	return writes{
		create: func(ctx context.Context, dataset int, status, kind string, size int64) error {
			return c.File.Create().SetDatasetID(dataset).SetStatus(status).SetKind(kind).SetSize(size).Exec(ctx)
		},
		move: func(ctx context.Context, ids []int, dataset int, from, to string) error {
			return c.File.Update().Where(v2file.IDIn(ids...), v2file.DatasetID(dataset), v2file.Status(from)).SetStatus(to).Exec(ctx)
		},
		resize: func(ctx context.Context, id int, size int64) error {
			return c.File.Update().Where(v2file.ID(id)).SetSize(size).Exec(ctx)
		},
		remove: func(ctx context.Context, id int) error {
			_, err := c.File.Delete().Where(v2file.ID(id)).Exec(ctx)
			return err
		},
	}
}

func writesV3(c *v3.Client) writes {
	return writes{
		create: func(ctx context.Context, dataset int, status, kind string, size int64) error {
			return c.File.Create().SetDatasetID(dataset).SetStatus(status).SetKind(kind).SetSize(size).Exec(ctx)
		},
		move: func(ctx context.Context, ids []int, dataset int, from, to string) error {
			return c.File.Update().Where(v3file.IDIn(ids...), v3file.DatasetID(dataset), v3file.Status(from)).SetStatus(to).Exec(ctx)
		},
		resize: func(ctx context.Context, id int, size int64) error {
			return c.File.Update().Where(v3file.ID(id)).SetSize(size).Exec(ctx)
		},
		remove: func(ctx context.Context, id int) error {
			_, err := c.File.Delete().Where(v3file.ID(id)).Exec(ctx)
			return err
		},
	}
}

func writesV4(c *v4.Client) writes {
	return writes{
		create: func(ctx context.Context, dataset int, status, kind string, size int64) error {
			return c.Document.Create().SetCollectionID(dataset).SetStatus(status).SetKind(kind).SetSize(size).Exec(ctx)
		},
		move: func(ctx context.Context, ids []int, dataset int, from, to string) error {
			return c.Document.Update().Where(v4document.IDIn(ids...), v4document.CollectionID(dataset), v4document.Status(from)).SetStatus(to).Exec(ctx)
		},
		resize: func(ctx context.Context, id int, size int64) error {
			return c.Document.Update().Where(v4document.ID(id)).SetSize(size).Exec(ctx)
		},
		remove: func(ctx context.Context, id int) error {
			_, err := c.Document.Delete().Where(v4document.ID(id)).Exec(ctx)
			return err
		},
	}
}

// program is an instance of a program that writes.
type program struct {
	stop context.CancelFunc
	done sync.WaitGroup
	made atomic.Int64 // writes
}

// start starts an instance with some writers, one on SQLite, on the first files. None of its writes may fail, unless
// it lost a race or was stopped.
func (w *world) start(name string, writers, files int, do writes) *program {
	ctx, stop := context.WithCancel(w.ctx)
	p := &program{stop: stop}
	if w.db.Dialect == dialect.SQLite {
		writers = 1
	}
	for range writers {
		p.done.Go(func() {
			for ctx.Err() == nil {
				// Not by ctx: what is cancelled may still commit later.
				if err := do.random(w.ctx, files); err != nil && w.ctx.Err() == nil && !entcounter.Retryable(err) {
					w.Errorf("%s: %v", name, err)
					return
				}
				p.made.Add(1)
				_ = pause(ctx, 10*time.Millisecond)
			}
		})
	}
	w.Cleanup(p.end)
	return p
}

// work runs a worker for as long as the test.
func (w *world) work(counters []*entcounter.Handle) {
	worker := entcounter.NewWorker(counters, entcounter.WorkerOptions{MinInterval: 100 * time.Millisecond, MaxInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(w.ctx)
	var done sync.WaitGroup
	done.Go(func() { _ = worker.Run(ctx) })
	w.Cleanup(func() { stop(); done.Wait() })
}

// end stops an instance when it has done what it is doing.
func (p *program) end() {
	p.stop()
	p.done.Wait()
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}

func (d writes) random(ctx context.Context, files int) error {
	dataset, status, id := 1+rand.IntN(datasets+2), statuses[rand.IntN(4)], 1+rand.IntN(files)
	if rand.IntN(2) == 0 {
		dataset = large
	}
	switch rand.IntN(5) {
	case 0:
		return d.create(ctx, dataset, status, kinds[rand.IntN(3)], rand.Int64N(1000))
	case 1:
		return d.resize(ctx, id, rand.Int64N(1000))
	case 2:
		return d.remove(ctx, id)
	}
	ids := make([]int, 20)
	for i := range ids {
		ids[i] = id + i
	}
	return d.move(ctx, ids, dataset, status, statuses[rand.IntN(4)])
}

// drift returns how many keys of a counter differ from a recount.
func (w *world) drift(h *entcounter.Handle) (keys int) {
	w.Helper()
	no(w, h.Verify(w.ctx, nil, func(func(...any) error) error { keys++; return nil }))
	return keys
}

// counts are the rows of a query by all columns but the measures, as text.
func (w *world) counts(query string) map[string]string {
	w.Helper()
	rows, err := w.pool.QueryContext(w.ctx, w.quoted(query))
	no(w, err)
	defer func() { _ = rows.Close() }()
	counts := make(map[string]string)
	for rows.Next() {
		var key, measures string
		no(w, rows.Scan(&key, &measures))
		counts[key] = measures
	}
	no(w, rows.Err())
	return counts
}

// unbuilt is what a migration says of a counter that reads must not build.
func unbuilt(counter string) string {
	return fmt.Sprintf("INSERT INTO counter_locks (counter_name, operation, version, declaration) VALUES ('%s', 'rebuilt', 0, '%s')", counter, entcounter.Unbuilt)
}
