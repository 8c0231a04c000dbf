package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/schema"

	"github.com/entcounter/entcounter/internal/dsn"
	"github.com/entcounter/entcounter/migrate/migrations"
)

// operator is what the revisions say about who has run them.
const operator = "entcounter"

// target opens the database of -dsn.
func (p *program) target(ctx context.Context) (*database, migrate.Dir, error) {
	if p.dsn == "" {
		return nil, nil, usagef("-dsn is missing: give %s", strings.Join(dsn.Forms, " or "))
	}
	src, err := dsn.Parse(p.dsn)
	if err != nil {
		return nil, nil, usagef("-dsn: %w", err)
	}
	dir, err := p.files(src.Dialect)
	if err != nil {
		return nil, nil, err
	}
	d, err := open(ctx, src)
	return d, dir, err
}

// files returns the migrations for a dialect, and makes sure that they are as they were signed.
func (p *program) files(dialect string) (migrate.Dir, error) {
	if p.dir == "" {
		dir, err := migrations.Dir(dialect)
		if err != nil {
			return nil, err
		}
		return dir, validate(dir, "the folder built into this program")
	}
	dir, path, err := p.folder(dialect)
	if err != nil {
		return nil, err
	}
	return dir, validate(dir, path)
}

// folder opens the folder on disk.
func (p *program) folder(dialect string) (*migrate.LocalDir, string, error) {
	name, err := migrations.Folder(dialect)
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(p.dir, name)
	dir, err := migrate.NewLocalDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", usagef("-dir: there is no folder %s: run in the root of the repository, or give the folder that holds %s", path, name)
	}
	return dir, path, err
}

func validate(dir migrate.Dir, name string) error {
	err := migrate.Validate(dir)
	var sum *migrate.ChecksumError
	const mend = "If that is meant, run hash; else restore it"
	switch {
	case errors.As(err, &sum):
		return fmt.Errorf("%s: the checksum does not match: %s was %s after atlas.sum was written. %s", name, sum.File, sum.Reason, mend)
	case errors.Is(err, migrate.ErrChecksumNotFound):
		return fmt.Errorf("%s: there is no atlas.sum, which signs the files. %s", name, mend)
	case err != nil:
		return fmt.Errorf("%s: reading atlas.sum: %w", name, err)
	}
	return nil
}

// apply runs every file that the database does not have, in order, each in a transaction where that helps.
func (p *program) apply(ctx context.Context) (err error) {
	d, dir, err := p.target(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.lock(ctx, p.lockTimeout); err != nil {
		return err
	}
	if p.dryRun {
		return p.applyDry(ctx, d, dir)
	}
	table, err := atlasTable(ctx, d, revisionsTable)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		err := p.applyNext(ctx, d, dir, table)
		switch {
		case errors.Is(err, migrate.ErrNoPendingFiles):
			fmt.Fprintf(p.stdout, "%s is up to date; files run: %d\n", d.Label, n)
			return nil
		case err != nil:
			return err
		}
	}
}

// applyDry prints what apply would run.
func (p *program) applyDry(ctx context.Context, d *database, dir migrate.Dir) error {
	drv, err := d.atlas(d.conn)
	if err != nil {
		return err
	}
	revs, err := revisionsIn(ctx, d, drv)
	if err != nil {
		return err
	}
	revs.dry = true
	ex, err := p.executor(drv, dir, revs)
	if err != nil {
		return err
	}
	pending, err := p.pending(ctx, ex, dir, revs)
	if errors.Is(err, migrate.ErrNoPendingFiles) {
		fmt.Fprintf(p.stdout, "%s is up to date\n", d.Label)
		return nil
	}
	for _, f := range pending {
		if err == nil {
			err = ex.Execute(ctx, f)
		}
	}
	if err == nil {
		fmt.Fprintf(p.stdout, "dry run: nothing of this was run; files: %d\n", len(pending))
	}
	return err
}

// errAlone is returned for a file that must not run in a transaction.
var errAlone = errors.New("the file runs outside of a transaction")

// applyNext runs the first file that the database does not have.
func (p *program) applyNext(ctx context.Context, d *database, dir migrate.Dir, table *schema.Table) error {
	conn, err := d.atlas(d.conn)
	if err != nil {
		return err
	}
	if d.transactional() {
		err := p.applyInTransaction(ctx, d, dir, table)
		if !errors.Is(err, errAlone) {
			return err
		}
	}
	revs, err := createRevisions(ctx, d, conn, table)
	if err != nil {
		return err
	}
	return p.applyOn(ctx, conn, dir, revs, false)
}

func (p *program) applyInTransaction(ctx context.Context, d *database, dir migrate.Dir, table *schema.Table) error {
	tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	revs, err := createRevisions(ctx, d, tx.Driver, table)
	if err == nil {
		err = p.applyOn(ctx, tx.Driver, dir, revs, true)
	}
	if err == nil || errors.Is(err, errAlone) || errors.Is(err, migrate.ErrNoPendingFiles) {
		return cmp.Or(tx.commit(), err)
	}
	rollback := tx.rollback()
	if ctx.Err() != nil {
		return err // and the connection may be gone
	}
	var failed *statementError
	if rollback != nil || !errors.As(err, &failed) {
		return errors.Join(err, rollback)
	}
	rev := *revs.started
	rev.Error, rev.ErrorStmt = failed.err.Error(), failed.stmt
	return errors.Join(err, d.record(ctx, table, &rev))
}

// applyOn runs the first file that the database does not have on a connection or in a transaction.
func (p *program) applyOn(ctx context.Context, drv migrate.Driver, dir migrate.Dir, revs *revisions, inTx bool) error {
	ex, err := p.executor(drv, dir, revs)
	if err != nil {
		return err
	}
	pending, err := p.pending(ctx, ex, dir, revs)
	if err != nil {
		return err
	}
	f := pending[0]
	if local, ok := f.(*migrate.LocalFile); ok && inTx && slices.Contains(local.Directive("txmode"), "none") {
		return errAlone
	}
	stmts, err := migrate.FileStmtDecls(executorDriver{Driver: drv}, f)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	if err := p.resume(ctx, dir, revs, f, stmts, inTx); err != nil {
		return err
	}
	start := time.Now()
	err = ex.Execute(ctx, f)
	var (
		changed migrate.HistoryChangedError
		failed  *migrate.StmtExecError
	)
	switch {
	case errors.As(err, &changed):
		return fmt.Errorf("%s: statement %d was changed after it was run on this database: restore it", changed.File, changed.Stmt)
	case errors.As(err, &failed):
		n := slices.IndexFunc(stmts, func(s *migrate.Stmt) bool { return s.Pos == failed.Stmt.Pos })
		return &statementError{file: f.Name(), stmt: failed.Stmt.Text, n: n + 1, total: len(stmts), undone: inTx, err: failed.Err}
	case err != nil:
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	fmt.Fprintf(p.stdout, "  ok, %s\n", time.Since(start).Round(time.Millisecond))
	return nil
}

func (p *program) executor(drv migrate.Driver, dir migrate.Dir, revs *revisions) (*migrate.Executor, error) {
	return migrate.NewExecutor(executorDriver{drv, revs.dry}, dir, revs, migrate.WithOperatorVersion(operator),
		migrate.WithBaselineVersion(p.baseline), migrate.WithLogger(logger{p.stdout}))
}

// pending returns the files to run, at least one or an error. Files that were run must be as they were then.
func (p *program) pending(ctx context.Context, ex *migrate.Executor, dir migrate.Dir, revs *revisions) ([]migrate.File, error) {
	pending, err := ex.Pending(ctx)
	var (
		dirty   *migrate.NotCleanError
		skipped *migrate.HistoryNonLinearError
		missing *migrate.MissingMigrationError
	)
	switch {
	case errors.As(err, &dirty):
		return nil, fmt.Errorf("the database is not empty, and nothing says which migrations it has: %s. "+
			"If its tables are those of one of the files, give that file's version with -baseline", dirty.Reason)
	case errors.As(err, &skipped):
		var names []string
		for _, f := range skipped.OutOfOrder {
			names = append(names, f.Name())
		}
		return nil, fmt.Errorf("%s: older than a file that the database has already: give it a newer version, and run hash", strings.Join(names, ", "))
	case errors.As(err, &missing):
		return nil, fmt.Errorf("the database has a part of %s_%s.sql, which is not in the folder: restore it", missing.Version, missing.Description)
	}
	if err != nil && !errors.Is(err, migrate.ErrNoPendingFiles) {
		return nil, err
	}
	done, rerr := revs.ReadRevisions(ctx)
	if rerr != nil {
		return nil, rerr
	}
	return pending, cmp.Or(unchanged(dir, done), err)
}

// unchanged makes sure that the files which the database has whole are those in the folder. Checksums cover what
// stands before a file too: the first one that differs is the one that was changed.
func unchanged(dir migrate.Dir, done []*migrate.Revision) error {
	sum, err := dir.Checksum()
	if err != nil {
		return err
	}
	files, err := dir.Files()
	if err != nil {
		return err
	}
	for _, f := range files {
		for _, rev := range done {
			if rev.Version != f.Version() || rev.Hash == "" || rev.Applied != rev.Total {
				continue
			}
			if hash, err := sum.SumByName(f.Name()); err != nil {
				return err
			} else if hash != rev.Hash {
				return fmt.Errorf("%s, or a file before it, is not what was run on this database on %s: restore it, and write a new migration for the change",
					f.Name(), rev.ExecutedAt.UTC().Format(time.DateTime))
			}
		}
	}
	return nil
}

// resume prepares a file of which the database may have a part. The rest of it may have been mended since.
func (p *program) resume(ctx context.Context, dir migrate.Dir, revs *revisions, f migrate.File, stmts []*migrate.Stmt, inTx bool) error {
	skip := p.skip
	p.skip = false
	rev, err := revs.ReadRevision(ctx, f.Version())
	absent := errors.Is(err, migrate.ErrRevisionNotExist)
	if skip && (absent || inTx) {
		return fmt.Errorf("-skip: the database has no part of %s, the next file: there is nothing to skip", f.Name())
	}
	if absent {
		return nil
	}
	if err != nil {
		return err
	}
	sum, err := dir.Checksum()
	if err != nil {
		return err
	}
	if rev.Hash, err = sum.SumByName(f.Name()); err != nil {
		return err
	}
	rev.Total = len(stmts)
	if skip && rev.Applied < rev.Total {
		hash := sha256.New() // as the executor signs what is done
		for _, s := range stmts[:rev.Applied+1] {
			hash.Write([]byte(s.Text))
		}
		rev.PartialHashes = append(rev.PartialHashes, "h1:"+base64.StdEncoding.EncodeToString(hash.Sum(nil)))
		fmt.Fprintf(p.stdout, "skipped statement %d of %s\n%s\n", rev.Applied+1, f.Name(), indent(stmts[rev.Applied].Text))
		rev.Applied++
		rev.Error, rev.ErrorStmt = "", ""
	}
	return revs.WriteRevision(ctx, rev)
}

// statementError says which statement of a file failed, and what is to be done.
type statementError struct {
	file, stmt string
	n, total   int
	undone     bool // what the file had done before
	err        error
}

func (e *statementError) Error() string {
	return fmt.Sprintf("%s: statement %d of %d failed: %v\n%s\n%s", e.file, e.n, e.total, e.err, indent(e.stmt), advice(e.undone, e.n-1))
}

func (e *statementError) Unwrap() error { return e.err }

// advice tells what to do after a run stopped in a file.
func advice(undone bool, before int) string {
	if undone {
		return "Nothing of this file is in the database. Mend the cause, or the file (then run hash), and run apply again."
	}
	return fmt.Sprintf("Done before it and kept: %d. Mend the cause, or this statement and those after it (then run hash), and run apply again:\n"+
		"it goes on with this one. If the database has what it makes, because a run was killed right after it, run apply -skip.", before)
}

func indent(stmt string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(stmt), "\n", "\n  ")
}

// logger prints files and statements as they begin.
type logger struct{ io.Writer }

func (l logger) Log(entry migrate.LogEntry) {
	switch e := entry.(type) {
	case migrate.LogFile:
		fmt.Fprint(l, e.File.Name())
		if e.Skip > 0 {
			fmt.Fprintf(l, ", from statement %d", e.Skip+1)
		}
		fmt.Fprintln(l)
	case migrate.LogStmt:
		fmt.Fprintln(l, indent(e.SQL))
	}
}
