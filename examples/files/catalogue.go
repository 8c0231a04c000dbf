package main

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
)

// catalogue makes the rows say what is on disk. What it keeps in memory is one batch of entries for each
// worker, and the paths of folders that are still to be visited.
func (a *app) catalogue(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(a.workers)
	var visit func(path string) error
	visit = func(path string) error {
		below, err := a.folder(gctx, path)
		if err != nil {
			return err
		}
		for _, sub := range below {
			if g.TryGo(func() error { return visit(sub) }) {
				continue
			}
			if err := visit(sub); err != nil {
				return err
			}
		}
		return nil
	}
	g.Go(func() error { return visit(a.root) })
	if err := g.Wait(); err != nil {
		return err
	}
	return a.removeFolders(ctx)
}

// entry is a regular file as found on disk.
type entry struct {
	name string // encoded
	size int64
}

// folder catalogues the files of one folder and returns its subfolders. A folder that cannot be read is
// reported, and its rows stay as they are.
func (a *app) folder(ctx context.Context, path string) (below []string, err error) {
	var (
		id    int
		known bool
		seen  int64
		long  map[string]bool // abbreviated names in this folder
	)
	open := func() (err error) {
		if id == 0 {
			id, known, err = a.dataset(ctx, a.names.dataset(path))
			a.done.folders.Add(1)
		}
		return err
	}
	err = a.list(ctx, path, func(entries []fs.DirEntry) error {
		if err := open(); err != nil {
			return err
		}
		found := make(map[string]entry, len(entries))
		for _, e := range entries {
			switch {
			case e.IsDir():
				below = append(below, join(path, e.Name()))
			case e.Type().IsRegular():
				info, err := e.Info()
				switch {
				case err == nil:
					name := encode(e.Name(), maxPath)
					if _, ok := decode(name); !ok {
						if long == nil {
							long = make(map[string]bool)
						}
						long[name] = true
					}
					found[name] = entry{name, info.Size()}
				case !isGone(err):
					a.skip(join(path, e.Name()), err)
				}
			}
		}
		seen += int64(len(found))
		a.done.files.Add(int64(len(found)))
		return a.merge(ctx, id, known, found)
	})
	var unreadable unreadableError
	switch {
	case errors.As(err, &unreadable):
		a.skip(path, err)
		return below, nil
	case err != nil:
		return nil, err
	}
	if err := open(); err != nil { // an empty folder
		return nil, err
	}
	if known {
		err = a.removeFiles(ctx, id, path, seen, long)
	}
	return below, err
}

// dataset returns the dataset of a name, and whether it was there before.
func (a *app) dataset(ctx context.Context, name string) (id int, known bool, err error) {
	err = retry(ctx, func() (err error) {
		id, err = a.client.Dataset.Query().Where(dataset.Name(name)).OnlyID(ctx)
		if known = err == nil; known || !ent.IsNotFound(err) {
			return err
		}
		d, err := a.client.Dataset.Create().SetName(name).Save(ctx)
		if err != nil {
			return err // another process may have been faster
		}
		id = d.ID
		return nil
	})
	return id, known, err
}

// merge brings the rows of the found files up to date, in one transaction.
func (a *app) merge(ctx context.Context, dataset int, known bool, found map[string]entry) error {
	if len(found) == 0 {
		return nil
	}
	return retry(ctx, func() error {
		missing := found
		var changed []*ent.File
		if known {
			names := make([]string, 0, len(found))
			missing = make(map[string]entry)
			for name, e := range found {
				names = append(names, name)
				missing[name] = e
			}
			rows, err := a.client.File.Query().
				Where(file.DatasetID(dataset), file.PathIn(names...)).
				All(ctx)
			if err != nil {
				return err
			}
			for _, row := range rows {
				delete(missing, row.Path)
				if row.Size != found[row.Path].size {
					changed = append(changed, row)
				}
			}
		}
		if len(missing) == 0 && len(changed) == 0 {
			return nil
		}
		known = true // when it is tried again
		err := inTx(ctx, a.client, func(tx *ent.Tx) error {
			if len(missing) > 0 {
				rows := make([]*ent.FileCreate, 0, len(missing))
				for _, e := range missing {
					rows = append(rows, tx.File.Create().SetDatasetID(dataset).SetPath(e.name).SetSize(e.size))
				}
				if err := tx.File.CreateBulk(rows...).Exec(ctx); err != nil {
					return err
				}
			}
			for _, row := range changed { // has to be copied again
				err := tx.File.UpdateOne(row).SetSize(found[row.Path].size).SetStatus(file.StatusNew).Exec(ctx)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			a.done.created.Add(int64(len(missing)))
			a.done.changed.Add(int64(len(changed)))
		}
		return err
	})
}

// removeFiles deletes the rows of files that are gone from a folder in which some were seen.
func (a *app) removeFiles(ctx context.Context, id int, path string, seen int64, long map[string]bool) error {
	// All that were seen have a row by now. Where the counter says that there are no others, which is one read,
	// no row has to be looked at.
	total, err := a.client.FileCounters.Total(ctx, filecounters.ScopeOf(id))
	if err != nil || total.Count == seen {
		return err
	}
	for last := 0; ; {
		rows, err := a.client.File.Query().
			Where(file.DatasetID(id), file.IDGT(last)).
			Order(file.ByID()).
			Limit(a.batch).
			All(ctx)
		if err != nil || len(rows) == 0 {
			return err
		}
		last = rows[len(rows)-1].ID
		var gone []int
		for _, row := range rows {
			name, ok := decode(row.Path)
			if !ok {
				if !long[row.Path] {
					gone = append(gone, row.ID)
				}
				continue
			}
			info, err := a.disk.Lstat(join(path, name))
			if err == nil && !info.Mode().IsRegular() || err != nil && isGone(err) {
				gone = append(gone, row.ID)
			}
		}
		if len(gone) == 0 {
			continue
		}
		err = retry(ctx, func() error {
			n, err := a.client.File.Delete().Where(file.DatasetID(id), file.IDIn(gone...)).Exec(ctx)
			a.done.gone.Add(int64(n))
			return err
		})
		if err != nil {
			return err
		}
	}
}

// removeFolders deletes the datasets of folders that are gone. The database deletes their files with
// them.
func (a *app) removeFolders(ctx context.Context) error {
	return a.datasets(ctx, func(page []*ent.Dataset) error {
		for _, d := range page {
			path, ok := a.names.path(d.Name)
			if !ok && a.done.skipped.Load() > 0 || ok && !a.isGone(path) {
				continue // what was not visited may be there
			}
			total, err := a.client.FileCounters.Total(ctx, filecounters.ScopeOf(d.ID))
			if err != nil {
				return err
			}
			err = retry(ctx, func() error {
				return ignoreNotFound(a.client.Dataset.DeleteOne(d).Exec(ctx))
			})
			if err != nil {
				return err
			}
			a.done.removed.Add(1)
			a.done.gone.Add(total.Count)
			// Its counts are zero now. This takes the rows away that say so.
			if err := a.client.FileCounters.DeleteScope(ctx, filecounters.ScopeOf(d.ID)); err != nil {
				return err
			}
		}
		return nil
	})
}

// isGone reports whether a folder below the root is not there any more, or only behind a symbolic link.
func (a *app) isGone(path string) bool {
	for ; len(path) > len(a.root); path = filepath.Dir(path) {
		info, err := a.disk.Lstat(path)
		if err != nil && isGone(err) || err == nil && !info.IsDir() {
			return true
		}
	}
	return false
}

// datasets calls visit with the datasets of this tree, a page at a time.
func (a *app) datasets(ctx context.Context, visit func([]*ent.Dataset) error) error {
	for last := 0; ; {
		page, err := a.client.Dataset.Query().
			Where(dataset.IDGT(last)).
			Order(dataset.ByID()).
			Limit(a.batch).
			All(ctx)
		if err != nil || len(page) == 0 {
			return err
		}
		last = page[len(page)-1].ID
		mine := page[:0]
		for _, d := range page {
			if within(a.root, d.Name) {
				mine = append(mine, d)
			}
		}
		if len(mine) == 0 {
			continue
		}
		if err := visit(mine); err != nil {
			return err
		}
	}
}

func ignoreNotFound(err error) error {
	if ent.IsNotFound(err) {
		return nil
	}
	return err
}
