package sums

//go:generate go run entc.go
