//go:build ignore

// Command entc generates the client of the schema as ent alone would: the
// conformance suite compares its statements with those of the counting one.
package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
)

func main() {
	err := entc.Generate("../../../schema",
		&gen.Config{
			Target:  ".",
			Package: "github.com/entcounter/entcounter/internal/conformance/plain",
			Features: []gen.Feature{
				gen.FeatureUpsert,
				gen.FeatureModifier,
				gen.FeatureLock,
				gen.FeatureIntercept,
				gen.FeatureExecQuery,
			},
		},
	)
	if err != nil {
		log.Fatalf("running ent codegen: %v", err)
	}
}
