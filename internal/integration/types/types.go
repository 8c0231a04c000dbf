// Package types holds Go types of fields and ids.
package types

import (
	"crypto/rand"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// TenantID is an id that is a string by another name.
type TenantID string

// State is an enum declared outside of ent.
type State string

// The states of a task.
const (
	Open   State = "open"
	Doing  State = "doing"
	Done   State = "done"
	Failed State = "failed"
)

// Values implements ent's field.EnumValues.
func (State) Values() []string {
	return []string{string(Open), string(Doing), string(Done), string(Failed)}
}

// TokenID is an id that is written to the database in another form than it has
// in Go: "tok_17" for 17.
type TokenID uint32

// Value implements driver.Valuer.
func (id TokenID) Value() (driver.Value, error) { return fmt.Sprintf("tok_%d", uint32(id)), nil }

// Scan implements sql.Scanner.
func (id *TokenID) Scan(src any) error {
	var s string
	switch v := src.(type) {
	case string:
		s = v
	case []byte:
		s = string(v)
	case nil:
		return nil
	default:
		return fmt.Errorf("token id of type %T", src)
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "tok_"), 10, 32)
	*id = TokenID(n)
	return err
}

// Hash is an id of bytes.
type Hash [8]byte

// HashOf returns the hash of a number.
func HashOf(n uint64) (h Hash) {
	binary.BigEndian.PutUint64(h[:], n)
	return h
}

// NewHash returns a random hash.
func NewHash() (h Hash) {
	_, _ = rand.Read(h[:])
	return h
}

// Value implements driver.Valuer.
func (h Hash) Value() (driver.Value, error) { return h[:], nil }

// Scan implements sql.Scanner.
func (h *Hash) Scan(src any) error {
	b, ok := src.([]byte)
	if !ok && src != nil {
		return fmt.Errorf("hash of type %T", src)
	}
	copy(h[:], b)
	return nil
}
