// Package upgrade tests how a database and the programs on it get from one version of a schema with counters to the
// next: v1 counts nothing, v2 has a counter, v3 has counters in other forms beside it, and in v4 the counted table and
// a column of the key have other names than in v2.
package upgrade
