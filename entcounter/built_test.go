package entcounter

import (
	"testing"

	"github.com/entcounter/entcounter/internal/testdb"
)

// TestFoldNotesWhatAReadFoundOut has a fold note that a counter is built where the
// read that found it out could not.
func TestFoldNotesWhatAReadFoundOut(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		builtKeyOf(f.drv, f.def).remember(false)
		if _, err := f.Fold(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := f.builtBy(t.Context())
		if err != nil || got != f.def.declaration() {
			t.Errorf("built by %q (%v), want %q", got, err, f.def.declaration())
		}
	})
}

// TestDeclarationText has declarations that count differently differ, and cuts long
// ones off without losing that.
func TestDeclarationText(t *testing.T) {
	d := fileCounter()
	seen := map[string]bool{d.declaration(): true}
	for name, change := range map[string]func(*Source){
		"condition": func(s *Source) { s.Where = &Condition{Op: OpIsNull, Term: Term{Column: Column{Name: "deleted_at"}}} },
		"constant":  func(s *Source) { s.Where = &Condition{Op: OpEQ, Term: s.Key[1], Values: Constants{"new"}} },
		"another":   func(s *Source) { s.Where = &Condition{Op: OpEQ, Term: s.Key[1], Values: Constants{"old"}} },
		"null":      func(s *Source) { s.Key[1].Null = "none" },
		"measure":   func(s *Source) { s.Measures[1].Name = "weight" },
		"long": func(s *Source) {
			s.Where = &Condition{Op: OpIn, Term: s.Key[1]}
			for range 500 {
				s.Where.Values = append(s.Where.Values, "a value")
			}
		},
		"longer": func(s *Source) {
			s.Where = &Condition{Op: OpIn, Term: s.Key[1]}
			for range 501 {
				s.Where.Values = append(s.Where.Values, "a value")
			}
		},
	} {
		d := fileCounter()
		change(d.Sources[0])
		text := d.declaration()
		if seen[text] {
			t.Errorf("%s: another declaration has the text %q", name, text)
		}
		if seen[text] = true; len(text) > declarationLen {
			t.Errorf("%s: %d bytes", name, len(text))
		}
	}
}
