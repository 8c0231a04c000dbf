package entcounter

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"entgo.io/ent/schema/field"
)

// Condition restricts the rows that a counter, or one of its measures, counts. It
// is a comparison of a stored column with constants, or a combination of such
// comparisons, so that whether a row meets it changes only when the row does. As in
// SQL, a comparison with NULL is neither true nor false, and a row is counted where
// the whole is true.
//
// In a declaration, a field of a type that is reached over unique edges is written
// as a path: "dataset.archived".
type Condition struct {
	// Op is the operator.
	Op Operator `json:"op"`
	// Field is the path of the compared field, in a declaration.
	Field string `json:"field,omitempty"`
	// Values are compared with. In a declaration they are Go values of the field's
	// kind; in a generated schema, in the form that the column stores.
	Values Constants `json:"values,omitempty"`
	// Of are the combined conditions.
	Of []Condition `json:"of,omitempty"`
	// Term is the compared column, in a generated schema.
	Term Term `json:"-"`
}

// Constants are values in a declaration: strings, integers and bools, and Go types
// of these kinds.
type Constants []any

// constant is a value in the JSON in which ent hands declarations on, which has no
// integers of its own.
type constant struct {
	String *string `json:"string,omitempty"`
	Int    string  `json:"int,omitempty"`
	Bool   *bool   `json:"bool,omitempty"`
	// Unfit names the Go type of any other value.
	Unfit string `json:"unfit,omitempty"`
}

// Unfit stands for a value that cannot be in a declaration: it is the name of the
// value's Go type.
type Unfit string

// MarshalJSON implements [json.Marshaler].
func (c Constants) MarshalJSON() ([]byte, error) {
	encoded := make([]constant, len(c))
	for i, v := range c {
		switch rv := reflect.ValueOf(v); rv.Kind() {
		case reflect.String:
			s := rv.String()
			encoded[i].String = &s
		case reflect.Bool:
			b := rv.Bool()
			encoded[i].Bool = &b
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			encoded[i].Int = strconv.FormatInt(rv.Int(), 10)
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			encoded[i].Int = strconv.FormatUint(rv.Uint(), 10)
		default:
			encoded[i].Unfit = fmt.Sprintf("%T", v)
		}
	}
	return json.Marshal(encoded)
}

// UnmarshalJSON implements [json.Unmarshaler]. Integers are int64, or uint64 where
// they do not fit.
func (c *Constants) UnmarshalJSON(buf []byte) error {
	var encoded []constant
	if err := json.Unmarshal(buf, &encoded); err != nil {
		return err
	}
	values := make(Constants, len(encoded))
	for i, e := range encoded {
		switch {
		case e.String != nil:
			values[i] = *e.String
		case e.Bool != nil:
			values[i] = *e.Bool
		case e.Int != "":
			v, err := parseInteger(Column{Name: "constant"}, e.Int)
			if err != nil {
				return err
			}
			values[i] = v
		default:
			values[i] = Unfit(e.Unfit)
		}
	}
	*c = values
	return nil
}

// Operator is what a [Condition] does.
type Operator string

// The operators.
const (
	OpEQ      Operator = "eq"
	OpNEQ     Operator = "neq"
	OpIn      Operator = "in"
	OpNotIn   Operator = "not_in"
	OpLT      Operator = "lt"
	OpLTE     Operator = "lte"
	OpGT      Operator = "gt"
	OpGTE     Operator = "gte"
	OpIsNull  Operator = "is_null"
	OpNotNull Operator = "not_null"
	OpAnd     Operator = "and"
	OpOr      Operator = "or"
	OpNot     Operator = "not"
)

// EQ is the condition that a field has a value.
func EQ(field string, value any) Condition { return compare(OpEQ, field, value) }

// NEQ is the condition that a field has another value. NULL is none.
func NEQ(field string, value any) Condition { return compare(OpNEQ, field, value) }

// In is the condition that a field has one of several values.
func In(field string, values ...any) Condition { return compare(OpIn, field, values...) }

// NotIn is the condition that a field has a value that is none of several.
func NotIn(field string, values ...any) Condition { return compare(OpNotIn, field, values...) }

// LT is the condition that a field is less than a value.
func LT(field string, value any) Condition { return compare(OpLT, field, value) }

// LTE is the condition that a field is not greater than a value.
func LTE(field string, value any) Condition { return compare(OpLTE, field, value) }

// GT is the condition that a field is greater than a value.
func GT(field string, value any) Condition { return compare(OpGT, field, value) }

// GTE is the condition that a field is not less than a value.
func GTE(field string, value any) Condition { return compare(OpGTE, field, value) }

// IsNull is the condition that a field has no value, as of a deletion time.
func IsNull(field string) Condition { return Condition{Op: OpIsNull, Field: field} }

// NotNull is the condition that a field has a value.
func NotNull(field string) Condition { return Condition{Op: OpNotNull, Field: field} }

// And is the condition that all of the conditions hold.
func And(conditions ...Condition) Condition { return Condition{Op: OpAnd, Of: conditions} }

// Or is the condition that one of the conditions holds.
func Or(conditions ...Condition) Condition { return Condition{Op: OpOr, Of: conditions} }

// Not is the condition that another does not hold. Where a NULL leaves that open,
// so does Not.
func Not(condition Condition) Condition { return Condition{Op: OpNot, Of: []Condition{condition}} }

func compare(op Operator, field string, values ...any) Condition {
	return Condition{Op: op, Field: field, Values: values}
}

// terms calls visit for each column that the condition reads.
func (c *Condition) terms(visit func(Term)) {
	if c == nil {
		return
	}
	if len(c.Of) == 0 && c.Op != OpAnd && c.Op != OpOr {
		visit(c.Term)
	}
	for i := range c.Of {
		c.Of[i].terms(visit)
	}
}

// evaluable reports whether Go decides the condition as the database does: on
// columns that are stored as given, and whose equality is that of Go.
func (c *Condition) evaluable() bool {
	switch {
	case c == nil:
		return true
	case c.Op == OpAnd, c.Op == OpOr, c.Op == OpNot:
		return !slices.ContainsFunc(c.Of, func(o Condition) bool { return !o.evaluable() })
	case c.Op == OpIsNull, c.Op == OpNotNull:
		return c.Term.Join == 0
	}
	t := c.Term
	if t.Join != 0 || !t.Faithful {
		return false
	}
	switch {
	case t.Type == field.TypeBool, t.Type == field.TypeEnum:
		return c.Op == OpEQ || c.Op == OpNEQ || c.Op == OpIn || c.Op == OpNotIn
	default:
		return t.Type.Integer()
	}
}

// truth is a value of SQL's three-valued logic.
type truth int8

const (
	isFalse truth = iota - 1
	isUnknown
	isTrue
)

func truthOf(b bool) truth {
	if b {
		return isTrue
	}
	return isFalse
}

// holds evaluates the condition on the normalised values of a row.
func (c *Condition) holds(values map[string]any) bool {
	return c == nil || c.truth(values) == isTrue
}

func (c *Condition) truth(values map[string]any) truth {
	switch c.Op {
	case OpAnd:
		t := isTrue
		for i := range c.Of {
			t = min(t, c.Of[i].truth(values))
		}
		return t
	case OpOr:
		t := isFalse
		for i := range c.Of {
			t = max(t, c.Of[i].truth(values))
		}
		return t
	case OpNot:
		return -c.Of[0].truth(values)
	}
	v := values[c.Term.Name]
	switch c.Op {
	case OpIsNull:
		return truthOf(v == nil)
	case OpNotNull:
		return truthOf(v != nil)
	}
	if v == nil {
		return isUnknown
	}
	switch c.Op {
	case OpIn:
		return truthOf(slices.ContainsFunc(c.Values, func(o any) bool { return compareValues(v, o) == 0 }))
	case OpNotIn:
		return truthOf(!slices.ContainsFunc(c.Values, func(o any) bool { return compareValues(v, o) == 0 }))
	}
	order := compareValues(v, c.Values[0])
	switch c.Op {
	case OpEQ:
		return truthOf(order == 0)
	case OpNEQ:
		return truthOf(order != 0)
	case OpLT:
		return truthOf(order < 0)
	case OpLTE:
		return truthOf(order <= 0)
	case OpGT:
		return truthOf(order > 0)
	case OpGTE:
		return truthOf(order >= 0)
	}
	return isUnknown
}

// compareValues orders two normalised values of one column.
func compareValues(a, b any) int {
	switch a := a.(type) {
	case int64:
		switch b := b.(type) {
		case int64:
			return cmp.Compare(a, b)
		case uint64: // beyond the range of int64
			return -1
		}
	case uint64:
		switch b := b.(type) {
		case uint64:
			return cmp.Compare(a, b)
		case int64:
			return 1
		}
	case string:
		if b, ok := b.(string); ok {
			return strings.Compare(a, b)
		}
	case bool:
		if b, ok := b.(bool); ok {
			return int(truthOf(a) - truthOf(b))
		}
	case []byte:
		if b, ok := b.([]byte); ok {
			return bytes.Compare(a, b)
		}
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}
