package schema

import (
	"context"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/entql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/integration/ent/privacy"
)

// Memo is deleted softly, and a viewer sees and changes those of one board only.
// Its table has the name of one of another ent package in the process.
type Memo struct{ ent.Schema }

// Mixin of the Memo.
func (Memo) Mixin() []ent.Mixin { return []ent.Mixin{SoftDeleteMixin{}} }

// Annotations of the Memo.
func (Memo) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entsql.Annotation{Table: "files"},
		entcounter.Counter("Memo", entcounter.Key("board", "deleted"), entcounter.Count("count"), entcounter.Sum("bytes", "size")),
	}
}

// Fields of the Memo.
func (Memo) Fields() []ent.Field {
	return []ent.Field{
		field.String("board").MaxLen(40),
		field.Int64("size").Default(0),
	}
}

type viewerKey struct{}

// WithViewer returns the context of somebody who may see one board.
func WithViewer(parent context.Context, board string) context.Context {
	return context.WithValue(parent, viewerKey{}, board)
}

// Policy of the Memo.
func (Memo) Policy() ent.Policy {
	rule := privacy.FilterFunc(func(ctx context.Context, f privacy.Filter) error {
		board, ok := ctx.Value(viewerKey{}).(string)
		if !ok {
			return privacy.Skip
		}
		boards, ok := f.(interface{ WhereBoard(entql.StringP) })
		if !ok {
			return privacy.Denyf("unexpected filter %T", f)
		}
		boards.WhereBoard(entql.StringEQ(board))
		return privacy.Skip
	})
	return privacy.Policy{
		Query:    privacy.QueryPolicy{rule},
		Mutation: privacy.MutationPolicy{privacy.OnMutationOperation(rule, ent.OpUpdate|ent.OpUpdateOne|ent.OpDelete|ent.OpDeleteOne)},
	}
}
