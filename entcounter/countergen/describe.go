package countergen

import (
	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/entc/gen"
	"github.com/entcounter/entcounter/entcounter"
)

// Describe returns what would be generated for the declarations of a graph: the
// schema that the runtime works by, and the tables that keep the counters. It is for
// programs that look at declarations without generating code. A graph without
// declarations yields an empty schema; a wrong declaration is an error.
func Describe(g *gen.Graph) (*entcounter.Schema, []*schema.Table, error) {
	p, err := newPlan(g)
	if err != nil || p == nil {
		return &entcounter.Schema{}, nil, err
	}
	described := &entcounter.Schema{Tables: make(map[string]*entcounter.Table)}
	for _, c := range p.Counters {
		described.Counters = append(described.Counters, c.Definition)
	}
	for _, s := range p.Sequences {
		described.Sequences = append(described.Sequences, s.Definition)
	}
	for _, t := range p.Tables {
		described.Tables[t.Name] = t
	}
	return described, p.Migrate, nil
}
