//go:build ignore

package main

import (
	"log"
	"os"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
	"github.com/entcounter/entcounter/entcounter/countergen"
)

// The argument "all" turns all features of ent on.
func main() {
	config := &gen.Config{Target: ".", Package: "example.com/app/ent"}
	if len(os.Args) > 1 && os.Args[1] == "all" {
		config.Features = gen.AllFeatures
	}
	if err := entc.Generate("../schema", config, entc.Extensions(countergen.NewExtension())); err != nil {
		log.Fatal(err)
	}
}
