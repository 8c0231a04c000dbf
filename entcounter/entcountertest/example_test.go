package entcountertest_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"path/filepath"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/enttest"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/entcounter/entcountertest"
)

// archive is code of an application that is under test.
func archive(ctx context.Context, client *ent.Client, dataset int) error {
	return client.File.Update().Where(file.DatasetID(dataset), file.StatusEQ(file.StatusNew)).SetStatus(file.StatusCopied).Exec(ctx)
}

// purge is code of an application that goes behind ent's back.
func purge(ctx context.Context, client *ent.Client, dataset int) error {
	_, err := client.ExecContext(ctx, "DELETE FROM files WHERE dataset_id = ? AND size < 15", dataset)
	return err
}

// open returns a client for one test.
func open(t testing.TB) *ent.Client {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+
		"?_pragma=foreign_keys(1)&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	client := enttest.NewClient(t, enttest.WithOptions(ent.Driver(entsql.OpenDB(dialect.SQLite, db))))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func testArchive(t testing.TB) {
	client := open(t)
	entcountertest.Guard(t, client)

	dataset := client.Dataset.Create().SetName("a").SaveX(t.Context()).ID
	client.File.Create().SetDatasetID(dataset).SetPath("x").SetSize(10).ExecX(t.Context())
	client.File.Create().SetDatasetID(dataset).SetPath("y").SetSize(20).ExecX(t.Context())
	if err := archive(t.Context(), client, dataset); err != nil {
		t.Fatal(err)
	}
	entcountertest.RequireCount(t, client.FileCounters,
		filecounters.Key{DatasetID: dataset, Status: file.StatusCopied},
		filecounters.Measures{Count: 2, Bytes: 30})
	entcountertest.RequireExact(t, client)
}

func testPurge(t testing.TB) {
	client := open(t)
	entcountertest.Guard(t, client)

	dataset := client.Dataset.Create().SetName("a").SaveX(t.Context()).ID
	client.File.Create().SetDatasetID(dataset).SetPath("x").SetSize(10).ExecX(t.Context())
	if err := purge(t.Context(), client, dataset); err != nil {
		t.Fatal(err)
	}
}

// A test is guarded by one line. What it then does by SQL of its own fails it. The
// tests stand in functions here, whose failures are printed.
func Example() {
	for _, test := range []func(testing.TB){testArchive, testPurge} {
		failures, err := failuresOf(test)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(failures), "failures")
		for _, failure := range failures {
			fmt.Println(failure)
		}
	}

	// Output:
	// 0 failures
	// 1 failures
	// entcountertest: counters differ from a recount when the test ended; they were right the last time after mutation 2, File.Create (example_test.go:65):
	// 	counter File, key dataset_id=1 status="New": count counted 1, recounted 0; bytes counted 10, recounted 0
	// Counted is what goes through the generated client. For SQL of your own, call Journal in the same transaction.
}
