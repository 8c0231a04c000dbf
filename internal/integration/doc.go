// Package integration holds a richer schema than package conformance: cascades,
// SET NULL, trees, edge schemas, soft delete, odd names and ids of all kinds, with
// tests of every write that ent can make.
package integration
