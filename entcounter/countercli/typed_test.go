package countercli

import (
	"slices"
	"strings"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/schema"
	"github.com/google/uuid"

	"github.com/entcounter/entcounter/entcounter"
	integration "github.com/entcounter/entcounter/internal/integration/ent"
	"github.com/entcounter/entcounter/internal/integration/ent/migrate"
	_ "github.com/entcounter/entcounter/internal/integration/ent/runtime"
	language "github.com/entcounter/entcounter/internal/language/ent"
	"github.com/entcounter/entcounter/internal/language/ent/piece"
	"github.com/entcounter/entcounter/internal/testdb"
)

// command runs a command line that must succeed, and returns what it prints.
func command(t *testing.T, counters []*entcounter.Handle, line string) string {
	t.Helper()
	r := run(t.Context(), counters, "", strings.Fields(line)...)
	if r.code != ExitOK {
		t.Errorf("%s: %#v", line, r)
	}
	return r.stdout
}

// Keys of every type are found by what is printed of them.
func TestKeysOfEveryType(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client := integration.NewClient(integration.Driver(entsql.OpenDB(db.Dialect, db.DB(t))))
		var tables []*schema.Table // the others take seconds to make
		for _, table := range migrate.Tables {
			if slices.Contains([]string{"devices", "device_counters", "device_counter_journal", "blobs", "blob_counters", "blob_counter_journal", entcounter.LockTable}, table.Name) {
				tables = append(tables, table)
			}
		}
		if err := migrate.Create(ctx, client.Schema, tables); err != nil {
			t.Fatal(err)
		}
		site := uuid.MustParse("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
		client.Device.CreateBulk(
			client.Device.Create().SetSite(site).SetLoad(3).SetSerial("a"),
			client.Device.Create().SetSite(uuid.New()).SetLoad(4).SetSerial("b"),
		).ExecX(ctx)
		client.Blob.Create().SetBucket("a=b, c").SetSize(5).ExecX(ctx)

		if r := run(ctx, client.Counters(), "", "read", "--scope", "site="+site.String()); r.code != ExitUsage || !strings.Contains(r.stderr, "which counter?") {
			t.Errorf("%#v", r)
		}
		for line, want := range map[string]string{
			"read --counter Device --scope site=" + strings.ToUpper(site.String()): "f81d4fae-7dec-11d0-a765-00a0c91e6bf6      1     3",
			"read --counter Device --total":                                        "2     7",
			"top --counter Device --measure load --limit 1":                        " 4 ",
			"verify --counter Device --scope site=" + site.String():                "is exact",
			"verify --counter Device --counter Blob":                               "Blob is exact",
			"status --counter Blob --counter Device":                               "Device",
		} {
			if got := command(t, client.Counters(), line); !strings.Contains(got, want) {
				t.Errorf("%s prints\n%swant %q", line, got, want)
			}
		}
		if r := run(ctx, client.Counters(), "", "read", "--counter", "Blob", "--scope", "bucket=a=b, c"); !strings.Contains(r.stdout, "a=b, c      1") {
			t.Errorf("%#v", r)
		}
	})
}

// Periods, flags and values of enums are part of keys too, over edges and under what is
// counted in place of NULL.
func TestPeriods(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client := language.NewClient(language.Driver(entsql.OpenDB(db.Dialect, db.DB(t))))
		if err := client.Schema.Create(ctx); err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)
		client.Piece.CreateBulk(
			client.Piece.Create().SetMadeAt(at).SetSize(7).SetPublished(true),
			client.Piece.Create().SetMadeAt(at.Add(time.Second)).SetStage(piece.StageEaten),
		).ExecX(ctx)
		for line, want := range map[string]string{
			"read --counter Day --scope day=2026-11-30 --scope published=true":      "2026-11-30  true           1      7",
			"read --counter Day --scope published=false":                            "2026-12-01  false          1      0",
			"verify --counter Period --scope month=2026-11 --scope week=2026-11-30": "is exact",
			"read --counter Period --scope month=2026-12 --scope week=2026-11-30":   "never      1",
			"rebuild --counter Content --scope stage=eaten":                         "0 keys corrected",
		} {
			if got := command(t, client.Counters(), line); !strings.Contains(got, want) {
				t.Errorf("%s prints\n%swant %q", line, got, want)
			}
		}
	})
}
