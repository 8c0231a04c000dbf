//go:build ignore

// Command entc generates the client whose costs are measured as they grow.
package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"

	"github.com/entcounter/entcounter/entcounter/countergen"
)

func main() {
	err := entc.Generate("./schema",
		&gen.Config{
			Target:  ".",
			Package: "github.com/entcounter/entcounter/bench/shapes",
			Features: []gen.Feature{
				gen.FeatureExecQuery,
			},
		},
		entc.TemplateDir("template"),
		entc.Extensions(countergen.NewExtension()),
	)
	if err != nil {
		log.Fatalf("running ent codegen: %v", err)
	}
}
