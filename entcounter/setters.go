package entcounter

import "strings"

// settersOf returns the columns that an UPDATE statement made by ent's builder
// sets, and whether anything but the SET clause takes part in it (a predicate,
// an order, a limit, a prefix). It is not ok for a statement that it cannot take
// apart without doubt.
func settersOf(query string) (columns []string, filters, ok bool) {
	rest, found := strings.CutPrefix(query, "UPDATE ")
	if !found {
		return nil, true, false
	}
	if _, rest, found = cutIdentifier(rest); !found {
		return nil, true, false
	}
	if rest, found = strings.CutPrefix(rest, " SET "); !found {
		return nil, true, false
	}
	if rest == "" {
		return nil, false, true // modifiers without effect
	}
	for {
		var column string
		if strings.HasPrefix(rest, " WHERE ") || strings.HasPrefix(rest, " LIMIT ") || strings.HasPrefix(rest, " ORDER BY ") {
			return columns, true, true
		}
		if column, rest, found = cutIdentifier(rest); !found {
			return nil, true, false
		}
		columns = append(columns, column)
		if rest, found = strings.CutPrefix(rest, " = "); !found {
			return nil, true, false
		}
		end, found := endOfExpression(rest)
		if !found {
			return nil, true, false
		}
		if end == len(rest) {
			return columns, false, true
		}
		if rest[end] != ',' {
			return columns, true, true
		}
		rest = strings.TrimPrefix(rest[end:], ", ")
	}
}

// cutIdentifier cuts a quoted identifier off, without its quotes.
func cutIdentifier(s string) (name, rest string, ok bool) {
	if s == "" || s[0] != '`' && s[0] != '"' {
		return "", s, false
	}
	end := strings.IndexByte(s[1:], s[0])
	if end < 0 {
		return "", s, false
	}
	return s[1 : end+1], s[end+2:], true
}

// endOfExpression returns where the expression at the start of s ends: at a
// comma outside of parentheses and quotes, before a clause that follows the SET
// clause, or at the end. Text that may hide its structure is not ok.
func endOfExpression(s string) (int, bool) {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth < 0 {
				return 0, false
			}
		case c == '\'' || c == '"' || c == '`':
			end := strings.IndexByte(s[i+1:], c)
			if end < 0 {
				return 0, false
			}
			i += end + 1
		case c == '\\' || c == '#' || c == ';' || strings.HasPrefix(s[i:], "--") || strings.HasPrefix(s[i:], "/*"), c == '$' && i+1 < len(s) && (s[i+1] < '0' || s[i+1] > '9'):
			return 0, false
		case depth > 0:
		case c == ',':
			return i, true
		case c == ' ' && (hasKeyword(s[i:], " WHERE ") || hasKeyword(s[i:], " RETURNING ") || hasKeyword(s[i:], " ORDER BY ") || hasKeyword(s[i:], " LIMIT ")):
			return i, true
		}
	}
	return len(s), depth == 0
}

func hasKeyword(s, keyword string) bool {
	return len(s) >= len(keyword) && strings.EqualFold(s[:len(keyword)], keyword)
}
