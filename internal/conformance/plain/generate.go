package plain

//go:generate go run -mod=mod entc.go
