package counts

//go:generate go run entc.go
