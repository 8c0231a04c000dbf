package entcounter_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	_ "modernc.org/sqlite"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/entcounter"
)

// open returns a client on a new SQLite database with a dataset of three files: 10, 20 and 30 bytes.
func open(ctx context.Context) (client *ent.Client, dataset int, ids []int, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "example.db")+
		"?_pragma=foreign_keys(1)&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	client = ent.NewClient(ent.Driver(entsql.OpenDB(dialect.SQLite, db)))
	if err := client.Schema.Create(ctx); err != nil {
		log.Fatal(err)
	}
	dataset = client.Dataset.Create().SetName("example").SaveX(ctx).ID
	for i, size := range []int64{10, 20, 30} {
		f := client.File.Create().SetDatasetID(dataset).SetPath(fmt.Sprint(i)).SetSize(size).SaveX(ctx)
		ids = append(ids, f.ID)
	}
	return client, dataset, ids, func() {
		_ = client.Close()
		_ = os.RemoveAll(dir)
	}
}

// Files move from one status to another, and their counts are read.
func Example() {
	ctx := context.Background()
	client, dataset, ids, remove := open(ctx)
	defer remove()

	// Write: ordinary ent code.
	err := client.File.Update().
		Where(file.DatasetID(dataset), file.StatusEQ(file.StatusNew), file.IDIn(ids[:2]...)).
		SetStatus(file.StatusCopied).
		Exec(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// Read: one statement, exact.
	copied, err := client.FileCounters.Read(ctx, filecounters.Key{DatasetID: dataset, Status: file.StatusCopied})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(copied.Count, "files copied,", copied.Bytes, "bytes")

	// Output: 2 files copied, 30 bytes
}

// Total sums over a scope, and Query is an ordinary ent query.
func Example_query() {
	ctx := context.Background()
	client, dataset, ids, remove := open(ctx)
	defer remove()
	client.File.UpdateOneID(ids[0]).SetStatus(file.StatusFailed).ExecX(ctx)

	total, err := client.FileCounters.Total(ctx, filecounters.ScopeOf(dataset))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(total.Count, "files,", total.Bytes, "bytes")

	rows, err := client.FileCounters.Query().
		Where(filecounters.DatasetID(dataset), filecounters.CountGT(0)).
		Order(filecounters.ByCount()).
		All(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range rows {
		fmt.Println(row.Status, row.Count, row.Bytes)
	}

	// Output:
	// 3 files, 60 bytes
	// Failed 1 10
	// New 2 50
}

// Totals are over any keys, and by any key fields: here of the statuses with most
// bytes, over all datasets. Equal ones are in the order of the status.
func Example_totals() {
	ctx := context.Background()
	client, _, ids, remove := open(ctx)
	defer remove()
	client.File.UpdateOneID(ids[0]).SetStatus(file.StatusFailed).ExecX(ctx)
	client.File.UpdateOneID(ids[2]).SetStatus(file.StatusCopied).ExecX(ctx)

	total, err := client.FileCounters.Query().
		Where(filecounters.StatusIn(file.StatusNew, file.StatusFailed)).
		Total(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(total.Count, "files,", total.Bytes, "bytes,", total.Pending, "journal rows added")

	top, err := client.FileCounters.Query().
		Order(filecounters.ByBytes(entsql.OrderDesc())).
		Limit(2).
		TotalBy(ctx, filecounters.FieldStatus)
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range top {
		fmt.Println(row.Status, row.Count, row.Bytes)
	}

	// Output:
	// 2 files, 30 bytes, 6 journal rows added
	// Copied 1 30
	// New 1 20
}

// Distribution answers what cannot be added up: how many datasets have new files,
// and in which dataset the file in the middle is.
func Example_distribution() {
	ctx := context.Background()
	client, first, _, remove := open(ctx)
	defer remove()
	second := client.Dataset.Create().SetName("second").SaveX(ctx).ID
	client.File.Create().SetDatasetID(second).SetPath("x").SetSize(1).ExecX(ctx)

	d, err := client.FileCounters.Query().
		Where(filecounters.StatusEQ(file.StatusNew)).
		Distribution(ctx, filecounters.FieldDatasetID, filecounters.FieldCount, 0.5)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Rows, "files in", d.Distinct, "datasets")
	fmt.Println(d.Min.DatasetID == first, d.Max.DatasetID == second, d.Percentiles[0].DatasetID == first)

	// Output:
	// 4 files in 2 datasets
	// true true true
}

// All keys are read page by page while writers and folds go on.
func Example_pages() {
	ctx := context.Background()
	client, _, ids, remove := open(ctx)
	defer remove()
	client.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).ExecX(ctx)
	client.File.UpdateOneID(ids[1]).SetStatus(file.StatusFailed).ExecX(ctx)

	const size = 2
	query := client.FileCounters.Query()
	for {
		page, err := query.Limit(size).All(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, row := range page {
			fmt.Println(row.Status, row.Count)
		}
		if len(page) < size {
			break
		}
		last := page[len(page)-1]
		query = client.FileCounters.Query().After(filecounters.Key{DatasetID: last.DatasetID, Status: last.Status})
	}

	// Output:
	// Copied 1
	// Failed 1
	// New 1
}

// A page that shows one count in several places asks for it once.
func ExampleWithMemo() {
	client, dataset, ids, remove := open(context.Background())
	defer remove()
	ctx := entcounter.WithMemo(context.Background()) // in a middleware, of the request's context
	key := filecounters.Key{DatasetID: dataset, Status: file.StatusNew}

	for range 3 {
		n, err := client.FileCounters.Read(ctx, key) // asks the database once
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(n.Count)
	}
	client.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).ExecX(ctx)
	n, err := client.FileCounters.Read(ctx, key) // asks again: the request has changed something
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.Count)

	// Output:
	// 3
	// 3
	// 3
	// 2
}

// A worker folds all counters until its context ends.
func ExampleNewWorker() {
	ctx, cancel := context.WithCancel(context.Background())
	client, dataset, _, remove := open(ctx)
	defer remove()

	done := make(chan error)
	worker := entcounter.NewWorker(client.Counters(), entcounter.WorkerOptions{})
	go func() { done <- worker.Run(ctx) }()

	for {
		backlog, err := client.FileCounters.Backlog(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if backlog.Rows == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	n, err := client.FileCounters.Read(ctx, filecounters.Key{DatasetID: dataset, Status: file.StatusNew})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.Count, "files,", n.Pending, "journal rows to add")

	cancel()
	fmt.Println(<-done)

	// Output:
	// 3 files, 0 journal rows to add
	// <nil>
}

// Where no worker runs, reads that have to add many journal rows make fold.
func ExampleNewBackstop() {
	ctx := context.Background()
	client, _, _, remove := open(ctx)
	defer remove()

	backstop, err := entcounter.NewBackstop(client.Counters(), entcounter.BackstopOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer backstop.Close()
	fmt.Println(client.FileCounters.Query().CountX(ctx), "keys")

	// Output: 1 keys
}

// Health says what a read of the worst key has to add, and more.
func Example_health() {
	ctx := context.Background()
	client, _, _, remove := open(ctx)
	defer remove()

	health, err := client.FileCounters.Health(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(health.Journal, "journal rows,", health.Deepest, "of", health.DeepestKey)

	// Output: 3 journal rows, 3 of [1 New]
}

// Rows that hand-written SQL changes are journalled by the caller.
func Example_journal() {
	ctx := context.Background()
	client, dataset, _, remove := open(ctx)
	defer remove()

	deleteSmall := func(tx *ent.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM files WHERE dataset_id = ? AND status = 'New' AND size = 10", dataset)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		return tx.FileCounters.Journal(ctx, filecounters.Delta{
			Key:      filecounters.Key{DatasetID: dataset, Status: file.StatusNew},
			Measures: filecounters.Measures{Count: -n, Bytes: -10 * n},
		})
	}
	tx, err := client.Tx(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := deleteSmall(tx); err != nil {
		_ = tx.Rollback()
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	n, err := client.FileCounters.Read(ctx, filecounters.Key{DatasetID: dataset, Status: file.StatusNew})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.Count, "files,", n.Bytes, "bytes")

	// Output: 2 files, 50 bytes
}

// What went uncounted is found by Verify and mended by Rebuild.
func Example_rebuild() {
	ctx := context.Background()
	client, dataset, _, remove := open(ctx)
	defer remove()
	if _, err := client.ExecContext(ctx, "UPDATE files SET status = 'Copied' WHERE size = 10"); err != nil {
		log.Fatal(err)
	}

	scope := filecounters.ScopeOf(dataset)
	for drift, err := range client.FileCounters.Verify(ctx, scope) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(drift.Status, "stored", drift.Stored, "actual", drift.Actual)
	}
	rebuilt, err := client.FileCounters.Rebuild(ctx, scope)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rebuilt.Keys, "keys corrected")

	// Unordered output:
	// Copied stored {0 0} actual {1 10}
	// New stored {3 60} actual {2 50}
	// 2 keys corrected
}

// A transaction that another one got in the way of is run again as a whole.
func ExampleRetryable() {
	ctx := context.Background()
	client, dataset, ids, remove := open(ctx)
	defer remove()

	transaction := func() error {
		tx, err := client.Tx(ctx)
		if err != nil {
			return err
		}
		err = tx.File.Update().
			Where(file.DatasetID(dataset), file.StatusEQ(file.StatusNew), file.IDIn(ids...)).
			SetStatus(file.StatusCopying).
			Exec(ctx)
		if err != nil {
			_ = tx.Rollback()
			return err
		}
		return tx.Commit()
	}
	err := transaction()
	for n := 1; n < 10 && entcounter.Retryable(err); n++ {
		time.Sleep(time.Duration(n) * 10 * time.Millisecond)
		err = transaction()
	}
	fmt.Println(err)

	// Output: <nil>
}

// A counter that was added to a table in use is built, and verified, while others write.
func Example_build() {
	ctx := context.Background()
	client, dataset, _, remove := open(ctx)
	defer remove()
	// A program that does not count has written.
	_, err := client.ExecContext(ctx, "INSERT INTO files (dataset_id, path, size, status) VALUES (?, 'old', 40, 'New')", dataset)
	if err != nil {
		log.Fatal(err)
	}

	built, err := client.FileCounters.Build(ctx, entcounter.BuildOptions{Progress: entcounter.ProgressBar(os.Stderr)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(built.Done, "of", built.Scopes, "scopes,", built.Keys, "keys corrected")

	for drift, err := range client.FileCounters.Verify(ctx, filecounters.Scope{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(drift.Key, "is", drift.Stored, "and should be", drift.Actual)
	}

	// Output: 1 of 1 scopes, 1 keys corrected
}
