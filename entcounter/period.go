package entcounter

import (
	"fmt"
	"slices"
	"time"

	"entgo.io/ent/dialect"
)

// Period is a unit of time by which rows are grouped. Periods are those of UTC,
// whatever the time zone of a server, a session or a program.
//
// A period is written as text that sorts in time: an hour as "2026-11-30T15", a
// day as "2026-11-30", a week as the day of its Monday, "2026-11-30", and a month
// as "2026-11".
type Period string

// The periods.
const (
	Hour  Period = "hour"
	Day   Period = "day"
	Week  Period = "week"
	Month Period = "month"
)

// layout is the form of a period's text; empty for an unknown period.
func (p Period) layout() string {
	switch p {
	case Hour:
		return "2006-01-02T15"
	case Day, Week:
		return "2006-01-02"
	case Month:
		return "2006-01"
	}
	return ""
}

// Of returns the text of the period that a time belongs to.
func (p Period) Of(t time.Time) string {
	t = t.UTC()
	if p == Week {
		t = t.AddDate(0, 0, -(int(t.Weekday())+6)%7)
	}
	return t.Format(p.layout())
}

// Start returns the first instant of a period from its text, in UTC.
func (p Period) Start(text string) (time.Time, error) {
	t, err := time.Parse(p.layout(), text)
	if err != nil || p.Of(t) != text {
		return time.Time{}, fmt.Errorf("entcounter: %q is no %s: write it as Period.Of does", text, p)
	}
	return t, nil
}

// expr returns the SQL expression for the text of the period that a column's time
// belongs to. It depends on nothing but the stored value.
func (p Period) expr(dialectName, column string, zoneless bool) string {
	switch dialectName {
	case dialect.MySQL:
		if !zoneless {
			// A TIMESTAMP as seen in no session's time zone.
			column = "DATE_ADD('1970-01-01 00:00:00', INTERVAL FLOOR(UNIX_TIMESTAMP(" + column + ")) SECOND)"
		}
		switch p {
		case Hour:
			return "DATE_FORMAT(" + column + ", '%Y-%m-%dT%H')"
		case Week:
			return "DATE_FORMAT(DATE_SUB(" + column + ", INTERVAL WEEKDAY(" + column + ") DAY), '%Y-%m-%d')"
		case Month:
			return "DATE_FORMAT(" + column + ", '%Y-%m')"
		}
		return "DATE_FORMAT(" + column + ", '%Y-%m-%d')"
	case dialect.Postgres:
		if !zoneless {
			column = "(" + column + " AT TIME ZONE 'UTC')"
		}
		switch p {
		case Hour:
			return "to_char(" + column + `, 'YYYY-MM-DD"T"HH24')`
		case Week:
			return "to_char(date_trunc('week', " + column + "), 'YYYY-MM-DD')"
		case Month:
			return "to_char(" + column + ", 'YYYY-MM')"
		}
		return "to_char(" + column + ", 'YYYY-MM-DD')"
	default:
		// Drivers write a time as text, in one of several forms: date and time of day
		// in 19 characters, a fraction, then an offset as Z, +02:00 or +0200. The
		// fraction is left out, since SQLite rounds it.
		offset := "ltrim(substr(" + column + ", 20), '.0123456789 ')"
		utc := "substr(" + column + ", 1, 19) || CASE WHEN substr(" + offset + ", 1, 1) NOT IN ('+', '-') THEN ''" +
			" WHEN substr(" + offset + ", 4, 1) = ':' THEN substr(" + offset + ", 1, 6)" +
			" ELSE substr(" + offset + ", 1, 3) || ':' || substr(" + offset + ", 4, 2) END"
		switch p {
		case Hour:
			return "strftime('%Y-%m-%dT%H', " + utc + ")"
		case Week:
			return "strftime('%Y-%m-%d', " + utc + ", 'weekday 0', '-6 days')"
		case Month:
			return "strftime('%Y-%m', " + utc + ")"
		}
		return "strftime('%Y-%m-%d', " + utc + ")"
	}
}

// Periods lists all periods.
func Periods() []Period { return slices.Clone([]Period{Hour, Day, Week, Month}) }
