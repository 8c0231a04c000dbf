package countergen

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

// A read index is on the counter table and on the journal.
func TestReadIndexes(t *testing.T) {
	g := fileGraph(fileCounter(entcounter.Key("dataset_id", "status"), entcounter.Count("count"), entcounter.ReadIndex("status", "dataset_id")))
	p, err := newPlan(g.load(t, "Dataset", "File", "Tag"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"file_counters":        {"file_counters_by_status_dataset_id(status, dataset_id)"},
		"file_counter_journal": {"file_counter_journal_by_key(dataset_id, status)", "file_counter_journal_by_status_dataset_id(status, dataset_id)"},
		"counter_locks":        nil,
	}
	for _, table := range p.Migrate {
		var indexes []string
		for _, index := range table.Indexes {
			names := make([]string, len(index.Columns))
			for i, c := range index.Columns {
				names[i] = c.Name
			}
			indexes = append(indexes, index.Name+"("+strings.Join(names, ", ")+")")
		}
		if !slices.Equal(indexes, want[table.Name]) {
			t.Errorf("table %s has indexes %v, not %v", table.Name, indexes, want[table.Name])
		}
	}
}

// Generation warns of each declared read that is no range of an index, once.
func TestReadWarnings(t *testing.T) {
	tests := map[string]struct {
		options []entcounter.Option
		want    []string
	}{
		"nothing declared":    {},
		"the key":             {options: []entcounter.Option{entcounter.Reads("dataset_id", "status", "path")}},
		"a prefix":            {options: []entcounter.Option{entcounter.Reads("dataset_id")}},
		"a prefix, unordered": {options: []entcounter.Option{entcounter.Reads("status", "dataset_id")}},
		"a read index":        {options: []entcounter.Option{entcounter.Reads("status"), entcounter.ReadIndex("status", "path")}},
		"read index, unordered": {options: []entcounter.Option{
			entcounter.ReadIndex("status", "path", "dataset_id"), entcounter.Reads("path", "status"), entcounter.Reads("path", "dataset_id", "status"),
		}},
		"no index": {
			options: []entcounter.Option{entcounter.Reads("status")},
			want:    []string{`reads by status have no index that begins with these fields, and scan file_counters and file_counter_journal: put them first in the key, or add entcounter.ReadIndex("status")`},
		},
		"half an index": {
			options: []entcounter.Option{entcounter.Reads("dataset_id", "path"), entcounter.ReadIndex("status")},
			want:    []string{`reads by dataset_id and path have no index that begins with these fields, and scan file_counters and file_counter_journal: put them first in the key, or add entcounter.ReadIndex("dataset_id", "path")`},
		},
		"two, one of them twice": {
			options: []entcounter.Option{entcounter.Reads("status"), entcounter.Reads("path"), entcounter.Reads("status")},
			want:    []string{"reads by status have no index", "reads by path have no index"},
		},
		"needless": {
			options: []entcounter.Option{entcounter.ReadIndex("dataset_id", "status")},
			want:    []string{"the read index (dataset_id, status) is the beginning of the key, which has an index: remove it"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			options := append([]entcounter.Option{entcounter.Key("dataset_id", "status", "path"), entcounter.Count("count")}, tt.options...)
			g := fileGraph(fileCounter(options...))
			g["File"].fields[1] = field.String("path").MaxLen(40)
			p, err := newPlan(g.load(t, "Dataset", "File", "Tag"))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			p.warn(&out)
			lines := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' })
			if len(lines) != len(tt.want) {
				t.Fatalf("got %q, want %q", lines, tt.want)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, `entcounter: type File: counter "File": warning: `+tt.want[i]) {
					t.Errorf("got %q, want %q", line, tt.want[i])
				}
			}
		})
	}
}
