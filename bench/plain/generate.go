package plain

//go:generate go run entc.go
