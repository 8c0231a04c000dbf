// Package app is the module of a user.
package app

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"example.com/app/ent"
	"example.com/app/ent/colorcounters"
	"example.com/app/ent/enttest"
	"example.com/app/ent/group"
	"example.com/app/ent/groupcounters"
	"example.com/app/ent/paint"
	"example.com/app/ent/paintcounters"
	"example.com/app/ent/placementcounters"
	"example.com/app/kind"
	"github.com/google/uuid"
	_ "modernc.org/sqlite"
)

func open(t *testing.T) *ent.Client {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/app.db?_pragma=foreign_keys(1)&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	client := enttest.NewClient(t, enttest.WithOptions(ent.Driver(entsql.OpenDB(dialect.SQLite, db))))
	t.Cleanup(func() { client.Close() })
	return client
}

func TestReservedNames(t *testing.T) {
	ctx := context.Background()
	client := open(t)
	create := func(scope string, size uint32) *ent.Group {
		return client.Group.Create().
			SetOrder(1).SetScope(scope).SetSelect(true).SetKey(group.KeyB).SetType(-3).SetDelta([]byte{0, 1}).SetRange(size).
			SaveX(ctx)
	}
	create("x", 7)
	create("x", 8)
	create("y", 9)
	key := func(scope string) groupcounters.Key {
		return groupcounters.Key{Order: 1, Scope: scope, Select: true, Key: group.KeyB, Type: -3, Delta: []byte{0, 1}}
	}
	for range 2 {
		rows, err := client.GroupCounters.ReadMany(ctx, key("y"), key("none"), key("x"), key("y"))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range [][2]int64{{1, 9}, {0, 0}, {2, 15}, {1, 9}} {
			if got := [2]int64{rows[i].Measures, rows[i].Value}; got != want {
				t.Errorf("row %d counts %v, not %v", i, got, want)
			}
		}
		if rows[1].Scope != "none" || rows[1].Order != 1 {
			t.Errorf("the key of a missing row is not filled in: %v", rows[1])
		}
		one, scope := 1, "x"
		total, err := client.GroupCounters.Total(ctx, groupcounters.Scope{Order: &one, Scope: &scope})
		if err != nil {
			t.Fatal(err)
		}
		if total.Measures.Measures != 2 || total.Value != 15 || time.Since(total.UpdatedAt).Abs() > time.Minute {
			t.Errorf("unexpected total %+v", total)
		}
		rows, err = client.GroupCounters.Query().Where(groupcounters.ScopeEQ("x")).TotalBy(ctx, groupcounters.FieldType, groupcounters.FieldKey)
		if err != nil || len(rows) != 1 || rows[0].Type != -3 || rows[0].Key != group.KeyB || rows[0].Totals != 2 || rows[0].Scope != "" {
			t.Errorf("totals by type and key are %v, error %v", rows, err)
		}
		rows, err = client.GroupCounters.Query().After(key("x")).Limit(5).All(ctx)
		if err != nil || len(rows) != 1 || rows[0].Scope != "y" {
			t.Errorf("after x come %v, error %v", rows, err)
		}
		for _, field := range []string{"order", "scope", "select", "key", groupcounters.FieldType, "delta"} {
			d, err := client.GroupCounters.Query().Distribution(ctx, field, groupcounters.FieldTable)
			if err != nil || d.Rows != 3 || d.Distinct < 1 || d.Max.Order != 1 && d.Max.Scope != "y" && !d.Max.Select && d.Max.Key != group.KeyB && d.Max.Type != -3 && len(d.Max.Delta) != 2 {
				t.Errorf("distribution over %s is %v, error %v", field, d, err)
			}
		}
		if _, err := client.GroupCounters.Query().Distribution(ctx, groupcounters.FieldSelect, groupcounters.FieldTable, 0.5); err == nil || !strings.Contains(err.Error(), "is a bool, which has no percentiles") {
			t.Errorf("the median of a bool: error %v", err)
		}
		if total, err := client.GroupCounters.Total(ctx, groupcounters.ScopeOf(1)); err != nil || total.Value != 24 {
			t.Errorf("the total is %v, error %v", total, err)
		}
		n, err := client.GroupCounters.Query().Where(groupcounters.KeyEQ(group.KeyB), groupcounters.Select(true), groupcounters.ScopeEQ("x")).Count(ctx)
		if err != nil || n != 1 {
			t.Errorf("%d rows, error %v", n, err)
		}
		if _, err := client.GroupCounters.Fold(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for drift, err := range client.GroupCounters.Verify(ctx, groupcounters.Scope{}) {
		t.Errorf("drift %v, error %v", drift, err)
	}
}

func TestTypes(t *testing.T) {
	ctx := context.Background()
	client := open(t)
	batch := uuid.New()
	create := func(c kind.Color, shade *paint.Shade) *ent.Paint {
		return client.Paint.Create().
			SetIDOfBatch(batch).SetColor(c).SetLevel(2).SetCode(kind.Code{Number: 4}).SetNillableShade(shade).
			SaveX(ctx)
	}
	dark := paint.ShadeDark
	red := create("red", &dark)
	create("red", &dark)
	create("red", nil) // without a shade, it has no group in PaintCounters
	row, err := client.PaintCounters.Read(ctx, paintcounters.Key{IDOfBatch: batch, Color: "red", Level: 2, Code: kind.Code{Number: 4}, Shade: dark})
	if err != nil || row.Count != 2 {
		t.Errorf("read %v, error %v", row, err)
	}
	grams, err := client.ColorCounters.ReadMany(ctx, colorcounters.Key{Color: "green"}, colorcounters.Key{Color: "red"})
	if err != nil || grams[0].Grams != 0 || grams[1].Grams != 15 {
		t.Errorf("read %v, error %v", grams, err)
	}
	shelf := client.Shelf.Create().AddPaints(red).SaveX(ctx)
	placed, err := client.PlacementCounters.Read(ctx, placementcounters.Key{ShelfID: shelf.ID})
	if err != nil || placed.Paints != 1 {
		t.Errorf("read %v, error %v", placed, err)
	}
	if got := len(client.Counters()); got != 4 {
		t.Errorf("%d counters", got)
	}
	for _, verify := range []func() error{
		func() error {
			for d, err := range client.PaintCounters.Verify(ctx, paintcounters.Scope{IDOfBatch: &batch}) {
				t.Errorf("drift %v, error %v", d, err)
			}
			return nil
		},
	} {
		if err := verify(); err != nil {
			t.Error(err)
		}
	}
}
