package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
)

// statuses in the order in which a file goes through them.
var statuses = []file.Status{file.StatusNew, file.StatusCopying, file.StatusCopied, file.StatusFailed}

// batch is some new files of one dataset.
type batch struct {
	dataset *ent.Dataset
	files   []*ent.File
}

// transfer copies all files that are not copied yet.
func (a *app) transfer(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	batches := make(chan batch)
	g.Go(func() error {
		defer close(batches)
		return a.datasets(ctx, func(page []*ent.Dataset) error {
			return a.dispatch(ctx, page, batches)
		})
	})
	for range a.workers {
		g.Go(func() error {
			for b := range batches {
				if err := a.work(ctx, b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// dispatch sends the new files of a page of datasets to the workers. Files that another run has left in
// Copying or Failed are new again.
func (a *app) dispatch(ctx context.Context, page []*ent.Dataset, batches chan<- batch) error {
	// The counters tell which datasets have something to do: no file of the others is looked at.
	ids := make([]int, len(page))
	for i, d := range page {
		ids[i] = d.ID
	}
	counters, err := a.client.FileCounters.Query().
		Where(
			filecounters.DatasetIDIn(ids...),
			filecounters.StatusIn(file.StatusNew, file.StatusCopying, file.StatusFailed),
			filecounters.CountGT(0),
		).
		All(ctx)
	if err != nil {
		return err
	}
	todo := make(map[int]bool)
	for _, c := range counters {
		todo[c.DatasetID] = true
		if c.Status == file.StatusNew {
			continue
		}
		err := retry(ctx, func() error {
			return a.client.File.Update().
				Where(file.DatasetID(c.DatasetID), file.StatusEQ(c.Status)).
				SetStatus(file.StatusNew).
				Exec(ctx)
		})
		if err != nil {
			return err
		}
	}
	for _, d := range page {
		if !todo[d.ID] {
			continue
		}
		for last := 0; ; {
			files, err := a.client.File.Query().
				Where(file.DatasetID(d.ID), file.StatusEQ(file.StatusNew), file.IDGT(last)).
				Order(file.ByID()).
				Limit(a.batch).
				All(ctx)
			if err != nil {
				return err
			}
			if len(files) == 0 {
				break
			}
			last = files[len(files)-1].ID
			select {
			case batches <- batch{d, files}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// work takes a batch from New through Copying to Copied or Failed.
func (a *app) work(ctx context.Context, b batch) error {
	ids := make([]int, len(b.files))
	for i, f := range b.files {
		ids[i] = f.ID
	}
	err := retry(ctx, func() error {
		return move(ctx, a.client.File, b.dataset.ID, ids, file.StatusNew, file.StatusCopying)
	})
	if err != nil {
		return err
	}
	var copied, failed []int
	for _, f := range b.files {
		err := a.copyFile(ctx, b.dataset, f)
		switch {
		case ctx.Err() != nil:
			return ctx.Err() // the batch stays in Copying, for the next run
		case err == nil:
			copied = append(copied, f.ID)
		default:
			failed = append(failed, f.ID)
		}
	}
	err = retry(ctx, func() error {
		return inTx(ctx, a.client, func(tx *ent.Tx) error {
			if err := move(ctx, tx.File, b.dataset.ID, copied, file.StatusCopying, file.StatusCopied); err != nil {
				return err
			}
			return move(ctx, tx.File, b.dataset.ID, failed, file.StatusCopying, file.StatusFailed)
		})
	})
	if err == nil {
		a.done.copied.Add(int64(len(copied)))
	}
	return err
}

// copyFile reads one file, and reports when that fails.
func (a *app) copyFile(ctx context.Context, d *ent.Dataset, f *ent.File) error {
	folder, ok := a.names.path(d.Name)
	if !ok {
		folder = d.Name
	}
	path := join(folder, f.Path)
	err := errors.New("the folder was not found")
	if ok {
		var found string
		if found, err = a.fileAt(ctx, folder, f.Path); err == nil {
			path = found
			err = a.copy(found, f.Size)
		}
	}
	if err != nil && ctx.Err() == nil {
		a.complain(a.done.failed.Add(1), "failed", path, err)
	}
	return err
}

// move takes files of a dataset from one status to another. The predicate names the old status: rows that
// somebody else has moved meanwhile are not touched, and not counted.
func move(ctx context.Context, files *ent.FileClient, dataset int, ids []int, from, to file.Status) error {
	if len(ids) == 0 {
		return nil
	}
	return files.Update().
		Where(file.DatasetID(dataset), file.StatusEQ(from), file.IDIn(ids...)).
		SetStatus(to).
		Exec(ctx)
}
