//go:build ignore

package main

import (
	"log"
	"os"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
	"github.com/entcounter/entcounter/entcounter/countergen"
)

// The argument "all" turns all features of ent on that go with counters.
func main() {
	config := &gen.Config{Target: ".", Package: "example.com/app/ent"}
	if len(os.Args) > 1 && os.Args[1] == "all" {
		for _, f := range gen.AllFeatures {
			if f.Name != gen.FeatureSchemaConfig.Name {
				config.Features = append(config.Features, f)
			}
		}
	}
	if err := entc.Generate("../schema", config, entc.Extensions(countergen.NewExtension())); err != nil {
		log.Fatal(err)
	}
}
