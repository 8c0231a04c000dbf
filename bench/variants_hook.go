package main

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"entgo.io/ent"
	"entgo.io/ent/dialect"

	"github.com/entcounter/entcounter/bench/files"
	"github.com/entcounter/entcounter/bench/plain"
	"github.com/entcounter/entcounter/bench/plain/file"
	"github.com/entcounter/entcounter/bench/plain/hook"
)

// inPlace updates counter rows by a hook of ent, in the transaction of the mutation. A hook does not see which rows
// a mutation is about; here the application tells it by the context, which is the cheapest that such a hook can be.
type inPlace struct {
	counterTable
	sorted bool // it updates rows in the order of the keys
}

func (inPlace) alone() bool { return false }

func (w inPlace) connect(drv dialect.Driver) files.Client {
	c := plain.NewClient(plain.Driver(drv))
	c.File.Use(func(next ent.Mutator) ent.Mutator {
		return hook.FileFunc(func(ctx context.Context, m *plain.FileMutation) (ent.Value, error) {
			if m.Op().Is(ent.OpCreate) {
				return w.created(ctx, m, next)
			}
			return w.changed(ctx, m, next)
		})
	})
	return c.Files()
}

// difference is what a mutation adds to one key.
type difference struct {
	key files.Key
	files.Count
}

func (w inPlace) created(ctx context.Context, m *plain.FileMutation, next ent.Mutator) (ent.Value, error) {
	v, err := next.Mutate(ctx, m)
	if err != nil {
		return nil, err
	}
	dataset, _ := m.DatasetID()
	status, _ := m.Status()
	size, _ := m.Size()
	return v, w.add(ctx, m.Client(), difference{files.Key{Dataset: dataset, Status: string(status)}, files.Count{Files: 1, Bytes: size}})
}

func (w inPlace) changed(ctx context.Context, m *plain.FileMutation, next ent.Mutator) (ent.Value, error) {
	change, ok := files.ChangeOf(ctx)
	if !ok {
		return nil, errors.New("the hook was not told which files change")
	}
	bytes, err := w.bytesOf(ctx, m.Client(), change)
	if err != nil {
		return nil, err
	}
	v, err := next.Mutate(ctx, m)
	if err != nil {
		return nil, err
	}
	n := int64(v.(int))
	if n == 0 {
		return v, nil
	}
	differences := []difference{{change.From, files.Count{Files: -n, Bytes: -bytes}}}
	if status, ok := m.Status(); ok {
		differences = append(differences, difference{files.Key{Dataset: change.From.Dataset, Status: string(status)}, files.Count{Files: n, Bytes: bytes}})
	}
	return v, w.add(ctx, m.Client(), differences...)
}

// bytesOf sums the sizes of the files that are about to change, and locks them.
func (w inPlace) bytesOf(ctx context.Context, c *plain.Client, change files.Change) (sum int64, err error) {
	if !w.sums {
		return 0, nil
	}
	query := c.File.Query().Where(file.DatasetID(change.From.Dataset), file.StatusEQ(file.Status(change.From.Status)))
	if change.ID != 0 {
		query.Where(file.ID(change.ID))
	}
	if w.dialect != dialect.SQLite { // which has one writer
		query.ForUpdate()
	}
	var sizes []int64
	if err := query.Select(file.FieldSize).Scan(ctx, &sizes); err != nil {
		return 0, err
	}
	for _, size := range sizes {
		sum += size
	}
	return sum, nil
}

func (w inPlace) add(ctx context.Context, c *plain.Client, differences ...difference) error {
	if w.sorted {
		slices.SortFunc(differences, func(a, b difference) int {
			return cmp.Or(cmp.Compare(a.key.Dataset, b.key.Dataset), cmp.Compare(a.key.Status, b.key.Status))
		})
	}
	slot := rand.IntN(w.slots)
	for _, d := range differences {
		set, args := "n = n + ?", []any{d.Files}
		if w.sums {
			set, args = set+", bytes = bytes + ?", append(args, d.Bytes)
		}
		_, err := c.ExecContext(ctx, rebind(w.dialect, "UPDATE file_counts SET "+set+" WHERE dataset_id = ? AND status = ? AND slot = ?"),
			append(args, d.key.Dataset, d.key.Status, slot)...)
		if err != nil {
			return err
		}
	}
	return nil
}
