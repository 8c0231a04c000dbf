//go:build ignore

package main

import (
	"log"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
	"github.com/entcounter/entcounter/entcounter/countergen"
)

func main() {
	err := entc.Generate("../schema",
		&gen.Config{Target: ".", Package: "github.com/entcounter/entcounter/internal/upgrade/v4/ent"},
		entc.Extensions(countergen.NewExtension()),
	)
	if err != nil {
		log.Fatalf("running ent codegen: %v", err)
	}
}
