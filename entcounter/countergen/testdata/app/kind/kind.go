// Package kind is a user's own package with types of fields.
package kind

import (
	"database/sql/driver"
	"fmt"
)

// Color is an enum of the user's own, stored as text.
type Color string

// Values implements field.EnumValues.
func (Color) Values() []string { return []string{"red", "green"} }

// Level is a number of the user's own.
type Level int8

// Code is a text that is stored with a prefix.
type Code struct{ Number int }

// Value implements driver.Valuer.
func (c Code) Value() (driver.Value, error) { return fmt.Sprintf("C%d", c.Number), nil }

// Scan implements sql.Scanner.
func (c *Code) Scan(src any) error {
	switch src := src.(type) {
	case string:
		_, err := fmt.Sscanf(src, "C%d", &c.Number)
		return err
	case []byte:
		return c.Scan(string(src))
	}
	return fmt.Errorf("unexpected %T", src)
}
