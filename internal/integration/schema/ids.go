package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/integration/types"
	"github.com/google/uuid"
)

// Token has an id that its Go type writes in a way of its own, and two unique
// indexes besides.
type Token struct{ ent.Schema }

// Annotations of the Token.
func (Token) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Token", entcounter.Key("scope"), entcounter.Count("count"), entcounter.Sum("uses", "uses")),
		entcounter.Counter("TokenName", entcounter.Key("name"), entcounter.Count("count")),
	}
}

// Fields of the Token.
func (Token) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").GoType(types.TokenID(0)),
		field.String("scope").MaxLen(40),
		field.String("name").MaxLen(40),
		field.Int("serial").Unique(),
		field.Int64("uses").Default(0),
	}
}

// Indexes of the Token.
func (Token) Indexes() []ent.Index {
	return []ent.Index{index.Fields("scope", "name").Unique()}
}

// Device has a UUID that the application sets.
type Device struct{ ent.Schema }

// Annotations of the Device.
func (Device) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Device", entcounter.Key("site"), entcounter.Count("count"), entcounter.Sum("load", "load")),
	}
}

// Fields of the Device.
func (Device) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", uuid.UUID{}).Default(uuid.New),
		field.UUID("site", uuid.UUID{}),
		field.Int("load").Default(0),
		field.String("serial").MaxLen(40).Unique(),
	}
}

// Blob has an id of bytes.
type Blob struct{ ent.Schema }

// Annotations of the Blob.
func (Blob) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Blob", entcounter.Key("bucket"), entcounter.Count("count"), entcounter.Sum("bytes", "size")),
	}
}

// Fields of the Blob.
func (Blob) Fields() []ent.Field {
	return []ent.Field{
		field.Bytes("id").GoType(types.Hash{}).DefaultFunc(types.NewHash).SchemaType(map[string]string{dialect.MySQL: "varbinary(8)"}),
		field.String("bucket").MaxLen(40),
		field.Int64("size"),
	}
}

// Badge has a number that the database or the application gives, and values that
// only the database knows.
type Badge struct{ ent.Schema }

// Annotations of the Badge.
func (Badge) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Badge", entcounter.Key("color"), entcounter.Count("count"), entcounter.Sum("weight", "weight")),
	}
}

// Fields of the Badge.
func (Badge) Fields() []ent.Field {
	return []ent.Field{
		field.Int("id"),
		field.String("name").MaxLen(40),
		field.String("color").MaxLen(30).Optional().Annotations(entsql.Default("plain")),
		field.Int("weight").Optional().Annotations(entsql.DefaultExprs(map[string]string{
			dialect.MySQL: "3", dialect.Postgres: "1 + 2", dialect.SQLite: "(1 + 2)",
		})),
	}
}

// Vote is counted, and nothing of it summed.
type Vote struct{ ent.Schema }

// Annotations of the Vote.
func (Vote) Annotations() []schema.Annotation {
	return []schema.Annotation{entcounter.Counter("Vote", entcounter.Key("topic"), entcounter.Count("count"))}
}

// Fields of the Vote.
func (Vote) Fields() []ent.Field {
	return []ent.Field{field.String("topic").MaxLen(40)}
}
