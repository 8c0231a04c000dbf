package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ariga.io/atlas/sql/migrate"
)

// status prints each file and whether the database has it, and what is to be done if a run has stopped in one.
func (p *program) status(ctx context.Context) (err error) {
	d, dir, err := p.target(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	drv, err := d.atlas(d.conn)
	if err != nil {
		return err
	}
	revs, err := revisionsIn(ctx, d, drv)
	if err != nil {
		return err
	}
	revs.dry = true
	done, err := revs.ReadRevisions(ctx)
	if err != nil {
		return err
	}
	files, err := dir.Files()
	if err != nil {
		return err
	}
	ex, err := p.executor(drv, dir, revs)
	if err != nil {
		return err
	}
	pending, perr := p.pending(ctx, ex, dir, revs)
	next := "nothing to do"
	switch {
	case errors.Is(perr, migrate.ErrNoPendingFiles):
	case perr != nil:
		next = perr.Error()
	default:
		next = fmt.Sprintf("files to run by apply: %d", len(pending))
	}

	fmt.Fprintln(p.stdout, d.Label)
	for _, rev := range done {
		if !slices.ContainsFunc(files, func(f migrate.File) bool { return f.Version() == rev.Version }) {
			fmt.Fprintf(p.stdout, "  unknown  %s_%s.sql, run %s and not in the folder\n", rev.Version, rev.Description, when(rev))
		}
	}
	for _, f := range files {
		i := slices.IndexFunc(done, func(rev *migrate.Revision) bool { return rev.Version == f.Version() })
		switch {
		case i < 0 && len(done) > 0 && done[0].Type == migrate.RevisionTypeBaseline && f.Version() < done[0].Version:
			fmt.Fprintf(p.stdout, "  there    %s, before the baseline\n", f.Name())
		case i < 0:
			fmt.Fprintf(p.stdout, "  pending  %s\n", f.Name())
		case done[i].Type == migrate.RevisionTypeBaseline:
			fmt.Fprintf(p.stdout, "  there    %s, the baseline\n", f.Name())
		case done[i].Applied == done[i].Total:
			fmt.Fprintf(p.stdout, "  applied  %s, %s\n", f.Name(), when(done[i]))
		default:
			rev := done[i]
			fmt.Fprintf(p.stdout, "  stopped  %s, %s, at statement %d of %d\n", f.Name(), when(rev), rev.Applied+1, rev.Total)
			if rev.Error != "" {
				fmt.Fprintf(p.stdout, "%s\n%s\n", indent(rev.Error), indent(rev.ErrorStmt))
			}
			next = advice(rev.Applied == 0 && d.transactional(), rev.Applied)
		}
	}
	fmt.Fprintln(p.stdout, next)
	return nil
}

func when(rev *migrate.Revision) string { return rev.ExecutedAt.UTC().Format(time.DateTime) }
