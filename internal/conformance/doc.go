// Package conformance holds the suite that every database runs, unchanged, on
// the client generated for the schema at the root of the module. It has tests
// only: see the flags in world_test.go for longer runs and for replaying one.
package conformance
