// Package sequencetest holds the tests of sequences, which run unchanged on all
// databases, with a schema of their own.
package sequencetest
