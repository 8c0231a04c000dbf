//go:build ignore

// Command entc generates the client of the benchmarks without counters.
package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
)

func main() {
	err := entc.Generate("../../schema",
		&gen.Config{
			Target:  ".",
			Package: "github.com/entcounter/entcounter/bench/plain",
			Features: []gen.Feature{
				gen.FeatureLock,
				gen.FeatureExecQuery,
			},
		},
		entc.TemplateDir("../template"),
	)
	if err != nil {
		log.Fatalf("running ent codegen: %v", err)
	}
}
