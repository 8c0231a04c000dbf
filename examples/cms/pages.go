package main

import (
	"context"
	"fmt"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/examples/cms/ent"
	"github.com/entcounter/entcounter/examples/cms/ent/entry"
	"github.com/entcounter/entcounter/examples/cms/ent/media"
	"github.com/entcounter/entcounter/examples/cms/ent/sitecounters"
	"github.com/entcounter/entcounter/examples/cms/ent/user"
)

// place is what a page shows numbers of.
type place struct {
	kind string // "collection", "media", "user" or "term"
	id   int    // of the collection or term
}

// numbers are those of one place. Media and users have a total only, terms a total and published.
type numbers struct{ total, published, draft, scheduled int64 }

// counts are the numbers of a page.
type counts map[place]numbers

// page is a view that shows numbers, and the two ways to get them.
type page struct {
	name string
	// stored reads the counters, and returns how many journal rows were added up.
	stored func(context.Context, *ent.Tx, counts) (pending int64, err error)
	// scanned counts rows, each table in one statement.
	scanned func(context.Context, *ent.Tx, counts) error
}

func (a *app) pages() []page {
	return []page{
		{"dashboard", storedDashboard, scannedDashboard},
		{"editor", storedEditor, a.scannedEditor},
	}
}

func storedDashboard(ctx context.Context, tx *ent.Tx, c counts) (pending int64, err error) {
	entries, err := tx.EntryCounters.Query().All(ctx)
	if err != nil {
		return 0, err
	}
	for _, row := range entries {
		c[place{"collection", row.CollectionID}] = numbers{row.Total, row.Published, row.Draft, row.Scheduled}
		pending += row.Pending
	}
	site, err := tx.SiteCounters.Query().All(ctx)
	if err != nil {
		return 0, err
	}
	for _, row := range site {
		kind := map[sitecounters.Entity]string{sitecounters.EntityMedia: "media", sitecounters.EntityUser: "user"}[row.Entity]
		c[place{kind, 0}] = numbers{total: row.Total}
		pending += row.Pending
	}
	return pending, nil
}

func scannedDashboard(ctx context.Context, tx *ent.Tx, c counts) error {
	var entries []struct {
		CollectionID int   `sql:"collection_id"`
		Total        int64 `sql:"total"`
		Published    int64 `sql:"published"`
		Draft        int64 `sql:"draft"`
		Scheduled    int64 `sql:"scheduled"`
	}
	countOf := func(status entry.Status) ent.AggregateFunc {
		return func(s *entsql.Selector) string {
			return fmt.Sprintf("COUNT(CASE WHEN %s = '%s' THEN 1 END)", s.C(entry.FieldStatus), status)
		}
	}
	err := tx.Entry.Query().
		Where(entry.DeletedAtIsNil()).
		GroupBy(entry.FieldCollectionID).
		Aggregate(
			ent.As(ent.Count(), "total"),
			ent.As(countOf(entry.StatusPublished), "published"),
			ent.As(countOf(entry.StatusDraft), "draft"),
			ent.As(func(s *entsql.Selector) string { return entsql.Count(s.C(entry.FieldScheduledAt)) }, "scheduled"),
		).
		Scan(ctx, &entries)
	if err != nil {
		return err
	}
	for _, row := range entries {
		c[place{"collection", row.CollectionID}] = numbers{row.Total, row.Published, row.Draft, row.Scheduled}
	}
	files, err := tx.Media.Query().
		Aggregate(func(s *entsql.Selector) string { return entsql.Count(s.C(media.FieldID)) }).
		Int(ctx)
	if err != nil {
		return err
	}
	users, err := tx.User.Query().
		Aggregate(func(s *entsql.Selector) string { return entsql.Count(s.C(user.FieldID)) }).
		Int(ctx)
	if err != nil {
		return err
	}
	c[place{"media", 0}] = numbers{total: int64(files)}
	c[place{"user", 0}] = numbers{total: int64(users)}
	return nil
}

func storedEditor(ctx context.Context, tx *ent.Tx, c counts) (pending int64, err error) {
	terms, err := tx.TermCounters.Query().All(ctx)
	if err != nil {
		return 0, err
	}
	for _, row := range terms {
		c[place{"term", row.TermID}] = numbers{total: row.Total, published: row.Visible}
		pending += row.Pending
	}
	return pending, nil
}

func (a *app) scannedEditor(ctx context.Context, tx *ent.Tx, c counts) (err error) {
	b := entsql.Dialect(a.source.Dialect)
	entries, pairs := b.Table(entry.Table).As("e"), b.Table(entry.TermsTable).As("p")
	query, args := b.
		Select(pairs.C(entry.TermsPrimaryKey[1]), entsql.Count("*"),
			fmt.Sprintf("COUNT(CASE WHEN %s = '%s' THEN 1 END)", entries.C(entry.FieldStatus), entry.StatusPublished)).
		From(pairs).
		Join(entries).On(pairs.C(entry.TermsPrimaryKey[0]), entries.C(entry.FieldID)).
		Where(entsql.IsNull(entries.C(entry.FieldDeletedAt))).
		GroupBy(pairs.C(entry.TermsPrimaryKey[1])).
		Query()
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	for rows.Next() {
		var id int
		var n numbers
		if err := rows.Scan(&id, &n.total, &n.published); err != nil {
			return err
		}
		c[place{"term", id}] = n
	}
	return rows.Err()
}
