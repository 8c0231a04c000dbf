// Package language holds the tests of what a declaration can say: conditions, paths
// over edges, pairs of edges, periods, NULL, decimals and several types.
package language
