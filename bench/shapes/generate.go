package shapes

//go:generate go run entc.go
