package entcounter

import (
	"slices"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
)

// conjunct is one member of the conjunction that a predicate is: a row matches
// the predicate exactly if it matches all of its conjuncts.
type conjunct struct {
	// text is an SQL condition that can be a member of a conjunction as it
	// stands. Its placeholders are ?, whatever the dialect.
	text string
	args []any
	// columns of the own table that the condition refers to, without qualifier, as
	// written, each once. Complete only where known is set.
	columns []string
	// known tells that the condition was understood to the last token, and refers
	// to nothing but columns of the own table and arguments.
	known bool
	// pin is the column when the condition is exactly "column = ?", and value is
	// its argument. A boolean column and NOT of one, as ent writes comparisons
	// with true and false, pin the column to that bool; whoever uses such a pin
	// knows the column to be boolean. Equality is that of the database.
	pin   string
	value any

	// parts is text cut at its placeholders, which a question mark in a quoted
	// name is not.
	parts []string
	// pattern tells that the condition has a LIKE, which unlike = does not hold
	// for all values that the database holds equal (trailing spaces in MySQL).
	pattern bool
}

// conjuncts takes a predicate apart. The table is the one that unqualified
// columns belong to. It errs on the safe side: what cannot be taken apart
// beyond doubt is one conjunct that is not known.
func conjuncts(dialectName, table string, p *sql.Predicate) []conjunct {
	if p == nil {
		return nil
	}
	b := &sql.Builder{}
	b.SetDialect(dialectName)
	b.Join(p)
	query, args := b.Query()
	whole := []conjunct{{text: query, args: args, parts: []string{query}}}
	if b.Err() != nil || query == "" {
		return whole
	}
	tokens, ok := tokenize(dialectName, query)
	if !ok || countPlaceholders(tokens) != len(args) || slices.ContainsFunc(args, opaque) {
		return whole
	}
	whole[0].parts = rawParts(query, tokens)
	whole[0].text = strings.Join(whole[0].parts, "?")
	if !plainOutside(tokens) {
		return whole
	}
	s := splitter{query: query, table: table, args: args, quote: quoteOf(dialectName)}
	s.split(tokens)
	return s.out
}

// opaque reports whether an argument is more than a value.
func opaque(arg any) bool {
	_, querier := arg.(sql.Querier)
	return arg == nil || querier
}

// predicate returns the condition for use in a statement, with its arguments
// replaced by bind if that is given.
func (c conjunct) predicate(bind func(any) any) *sql.Predicate {
	return sql.P(func(b *sql.Builder) {
		for i, part := range c.parts {
			if i > 0 {
				arg := c.args[i-1]
				if bind != nil {
					arg = bind(arg)
				}
				b.Arg(arg)
			}
			b.WriteString(part)
		}
	})
}

type tokenKind uint8

const (
	tokenIdent       tokenKind = iota // a quoted name; text is the name
	tokenWord                         // a bare word; text is in upper case
	tokenPlaceholder                  // text is empty
	tokenSymbol                       // an operator or a punctuation mark
)

type token struct {
	kind       tokenKind
	text       string
	start, end int // in the query
}

func (t token) is(symbol string) bool { return t.kind == tokenSymbol && t.text == symbol }
func (t token) word(w string) bool    { return t.kind == tokenWord && t.text == w }

// quoteOf returns the character that ent quotes names with. The other one opens
// a string in MySQL, and may do so in SQLite.
func quoteOf(dialectName string) byte {
	if dialectName == dialect.Postgres {
		return '"'
	}
	return '`'
}

// tokenize cuts a condition into tokens. It refuses what could hide anything
// else: strings, comments, casts, statement ends, numbered and named parameters.
func tokenize(dialectName, query string) ([]token, bool) {
	var (
		tokens []token
		quote  = quoteOf(dialectName)
		params int
	)
	for i := 0; i < len(query); {
		start := i
		switch c := query[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		case c == quote:
			var name strings.Builder
			for i++; ; i++ {
				if i == len(query) || query[i] == 0 {
					return nil, false
				}
				if query[i] == quote {
					i++
					if i == len(query) || query[i] != quote {
						break
					}
				}
				name.WriteByte(query[i])
			}
			tokens = append(tokens, token{tokenIdent, name.String(), start, i})
		case c == '?' && dialectName != dialect.Postgres:
			i++
			if i < len(query) && isWordByte(query[i]) {
				return nil, false
			}
			tokens = append(tokens, token{tokenPlaceholder, "", start, i})
		case c == '$' && dialectName == dialect.Postgres:
			for i++; i < len(query) && isWordByte(query[i]); i++ {
			}
			params++
			if query[start+1:i] != strconv.Itoa(params) {
				return nil, false
			}
			tokens = append(tokens, token{tokenPlaceholder, "", start, i})
		case isWordByte(c):
			for ; i < len(query) && isWordByte(query[i]); i++ {
			}
			tokens = append(tokens, token{tokenWord, strings.ToUpper(query[start:i]), start, i})
		case c == '(' || c == ')' || c == ',' || c == '.' || c == '*':
			i++
			tokens = append(tokens, token{tokenSymbol, query[start:i], start, i})
		case c == '=' || c == '<' || c == '>' || c == '!':
			for ; i < len(query) && strings.IndexByte("=<>!", query[i]) >= 0; i++ {
			}
			switch op := query[start:i]; op {
			case "=", "<>", "!=", "<", ">", "<=", ">=":
				tokens = append(tokens, token{tokenSymbol, op, start, i})
			default:
				return nil, false
			}
		default:
			return nil, false
		}
	}
	return tokens, true
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func countPlaceholders(tokens []token) (n int) {
	for _, t := range tokens {
		if t.kind == tokenPlaceholder {
			n++
		}
	}
	return n
}

// rawParts cuts the query at its placeholders.
func rawParts(query string, tokens []token) []string {
	parts := make([]string, 0, 2)
	start := 0
	for _, t := range tokens {
		if t.kind == tokenPlaceholder {
			parts = append(parts, query[start:t.start])
			start = t.end
		}
	}
	return append(parts, query[start:])
}

// plainOutside reports whether all words outside of parentheses are those with
// which an AND can only be the logical one (no BETWEEN, no CASE), and whether
// the parentheses match.
func plainOutside(tokens []token) bool {
	depth := 0
	for _, t := range tokens {
		switch {
		case t.is("("):
			depth++
		case t.is(")"):
			if depth--; depth < 0 {
				return false
			}
		case t.kind == tokenWord && depth == 0:
			switch t.text {
			case "AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "ILIKE", "ESCAPE", "EXISTS", "TRUE", "FALSE":
			default:
				return false
			}
		}
	}
	return depth == 0
}

// splitter collects the conjuncts of a condition.
type splitter struct {
	query, table string
	quote        byte
	args         []any // not yet taken by a conjunct
	out          []conjunct
}

// split adds the conjuncts of a condition. A conjunction in parentheses is a
// conjunction too; a disjunction is one conjunct.
func (s *splitter) split(tokens []token) {
	for enclosed(tokens) && plainOutside(tokens[1:len(tokens)-1]) {
		tokens = tokens[1 : len(tokens)-1]
	}
	var members [][]token
	depth, start := 0, 0
	for i, t := range tokens {
		switch {
		case t.is("("):
			depth++
		case t.is(")"):
			depth--
		case t.word("OR") && depth == 0:
			s.add(tokens)
			return
		case t.word("AND") && depth == 0:
			members = append(members, tokens[start:i])
			start = i + 1
		}
	}
	members = append(members, tokens[start:])
	if len(members) == 1 || slices.ContainsFunc(members, func(m []token) bool { return len(m) == 0 }) {
		s.add(tokens)
		return
	}
	for _, m := range members {
		s.split(m)
	}
}

// enclosed reports whether one pair of parentheses encloses all tokens.
func enclosed(tokens []token) bool {
	if len(tokens) < 2 || !tokens[0].is("(") {
		return false
	}
	depth := 0
	for i, t := range tokens {
		switch {
		case t.is("("):
			depth++
		case t.is(")"):
			if depth--; depth == 0 {
				return i == len(tokens)-1
			}
		}
	}
	return false
}

// add adds one conjunct.
func (s *splitter) add(tokens []token) {
	n := countPlaceholders(tokens)
	args := s.args[:n:n]
	s.args = s.args[n:]
	c := conjunct{args: args}
	p := parser{tokens: tokens, table: s.table, quote: s.quote}
	if p.condition() && len(p.tokens) == 0 {
		c.known, c.columns, c.pattern, c.parts = true, p.columns, p.pattern, append(p.parts, string(p.text))
		switch {
		case p.equals && n == 1:
			c.pin, c.value = p.columns[0], args[0]
		case p.bare:
			c.pin, c.value = p.columns[0], true
		case p.negated:
			c.pin, c.value = p.columns[0], false
		}
	} else {
		c.parts = []string{""}
		if len(tokens) > 0 {
			first, last := tokens[0].start, tokens[len(tokens)-1].end
			shifted := make([]token, len(tokens))
			for i, t := range tokens {
				shifted[i] = token{t.kind, t.text, t.start - first, t.end - first}
			}
			c.parts = rawParts(s.query[first:last], shifted)
		}
	}
	if slices.ContainsFunc(tokens, func(t token) bool { return t.word("OR") }) {
		c.parts[0] = "(" + c.parts[0]
		c.parts[len(c.parts)-1] += ")"
	}
	c.text = strings.Join(c.parts, "?")
	s.out = append(s.out, c)
}

// parser recognises the conditions that are understood in full, and writes them
// again with every column qualified by the table:
//
//	condition  = and { "OR" and } .
//	and        = factor { "AND" factor } .
//	factor     = "TRUE" | "FALSE" | "NOT" ( column | "FALSE" | "(" condition ")" )
//	           | "(" condition ")" | column | comparison .
//	comparison = value op value | tuple op tuple
//	           | value [ "NOT" ] "IN" "(" value { "," value } ")"
//	           | tuple [ "NOT" ] "IN" "(" [ "VALUES" ] tuple { "," tuple } ")"
//	           | column "IS" [ "NOT" ] "NULL"
//	           | column [ "NOT" ] ( "LIKE" | "ILIKE" ) placeholder [ "ESCAPE" placeholder ] .
//	tuple      = "(" value "," value { "," value } ")" .
//	value      = column | placeholder .
//	column     = [ [ schema "." ] table "." ] name .
//
// A comparison is followed by AND, OR, a parenthesis or nothing, so that no
// precedence or associativity of a server's own matters, and NOT is followed by
// what every server applies it to alone.
type parser struct {
	tokens []token
	table  string
	quote  byte

	text    []byte // since the last placeholder
	parts   []string
	columns []string
	pattern bool

	// What the last factor was, if it was the only one.
	equals, bare, negated bool
	factors               int
}

func (p *parser) peek(i int) token {
	if i < len(p.tokens) {
		return p.tokens[i]
	}
	return token{kind: tokenSymbol}
}

// take takes the next token and writes it.
func (p *parser) take() token {
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	if !t.is(")") && !t.is(",") {
		p.space()
	}
	if t.kind == tokenPlaceholder {
		p.parts = append(p.parts, string(p.text))
		p.text = nil
	} else {
		p.text = append(p.text, t.text...)
	}
	return t
}

// space writes a space, except at the start and after a parenthesis or another.
func (p *parser) space() {
	n := len(p.text)
	if n == 0 && len(p.parts) == 0 || n > 0 && (p.text[n-1] == '(' || p.text[n-1] == ' ') {
		return
	}
	p.text = append(p.text, ' ')
}

func (p *parser) takeWord(w string) bool {
	if p.peek(0).word(w) {
		p.take()
		return true
	}
	return false
}

func (p *parser) takeSymbol(symbol string) bool {
	if p.peek(0).is(symbol) {
		p.take()
		return true
	}
	return false
}

func (p *parser) condition() bool {
	for {
		if !p.and() {
			return false
		}
		if !p.takeWord("OR") {
			return true
		}
	}
}

func (p *parser) and() bool {
	for {
		if !p.factor() {
			return false
		}
		if !p.takeWord("AND") {
			return true
		}
	}
}

func (p *parser) factor() bool {
	p.factors++
	p.equals, p.bare, p.negated = false, false, false
	only := p.factors == 1
	switch {
	case p.takeWord("TRUE"), p.takeWord("FALSE"):
		return true
	case p.takeWord("NOT"):
		if p.takeWord("FALSE") {
			return true
		}
		if p.peek(0).is("(") {
			return p.nested()
		}
		if !p.column() || !p.atEnd() {
			return false
		}
		p.negated = only
		return true
	case p.peek(0).is("(") && !p.tuple(false):
		return p.nested()
	case p.peek(0).is("("):
		return p.tupleComparison()
	case p.peek(0).kind == tokenIdent:
		if !p.column() {
			return false
		}
		if p.atEnd() {
			p.bare = only
			return true
		}
		return p.columnComparison(only)
	case p.peek(0).kind == tokenPlaceholder:
		p.take()
		if !p.comparisonOperator() {
			return false
		}
		return p.value() && p.atEnd()
	}
	return false
}

// nested takes a condition in parentheses.
func (p *parser) nested() bool {
	p.take()
	ok := p.condition() && p.takeSymbol(")") && p.atEnd()
	p.equals, p.bare, p.negated = false, false, false
	p.factors++ // a condition in parentheses pins nothing
	return ok
}

// atEnd reports whether a comparison can end here.
func (p *parser) atEnd() bool {
	t := p.peek(0)
	return len(p.tokens) == 0 || t.is(")") || t.word("AND") || t.word("OR")
}

// columnComparison takes what follows a column.
func (p *parser) columnComparison(only bool) bool {
	if p.takeWord("IS") {
		p.takeWord("NOT")
		return p.takeWord("NULL") && p.atEnd()
	}
	if p.peek(0).is("=") && p.peek(1).kind == tokenPlaceholder {
		p.take()
		p.take()
		p.equals = only
		return p.atEnd()
	}
	if p.comparisonOperator() {
		return p.value() && p.atEnd()
	}
	p.takeWord("NOT")
	switch {
	case p.takeWord("IN"):
		return p.list(p.value) && p.atEnd()
	case p.takeWord("LIKE"), p.takeWord("ILIKE"):
		p.pattern = true
		if p.peek(0).kind != tokenPlaceholder {
			return false
		}
		p.take()
		if p.takeWord("ESCAPE") {
			if p.peek(0).kind != tokenPlaceholder {
				return false
			}
			p.take()
		}
		return p.atEnd()
	}
	return false
}

func (p *parser) tupleComparison() bool {
	p.tuple(true)
	if p.comparisonOperator() {
		return p.tuple(true) && p.atEnd()
	}
	p.takeWord("NOT")
	return p.takeWord("IN") && p.tuples() && p.atEnd()
}

func (p *parser) comparisonOperator() bool {
	for _, op := range []string{"=", "<>", "!=", "<", ">", "<=", ">="} {
		if p.takeSymbol(op) {
			return true
		}
	}
	return false
}

// list takes one or more items in parentheses.
func (p *parser) list(item func() bool) bool {
	return p.takeSymbol("(") && p.items(item)
}

// tuples takes a list of tuples, which SQLite has after VALUES only.
func (p *parser) tuples() bool {
	if !p.takeSymbol("(") {
		return false
	}
	p.takeWord("VALUES")
	return p.items(func() bool { return p.tuple(true) })
}

// items takes what follows the opening parenthesis of a list.
func (p *parser) items(item func() bool) bool {
	for {
		if !item() {
			return false
		}
		if p.takeSymbol(")") {
			return true
		}
		if !p.takeSymbol(",") {
			return false
		}
	}
}

// tuple reports whether a tuple follows, and takes it if told to.
func (p *parser) tuple(take bool) bool {
	probe := *p
	if !take {
		probe.text, probe.parts, probe.columns = nil, nil, nil
		p = &probe
	}
	n := 0
	return p.list(func() bool { n++; return p.value() }) && n > 1
}

func (p *parser) value() bool {
	if p.peek(0).kind == tokenPlaceholder {
		p.take()
		return true
	}
	return p.column()
}

// column takes a column of the own table.
func (p *parser) column() bool {
	var names []string
	for {
		t := p.peek(0)
		if t.kind != tokenIdent || t.text == "" {
			return false
		}
		names = append(names, t.text)
		p.tokens = p.tokens[1:]
		if !p.peek(0).is(".") {
			break
		}
		p.tokens = p.tokens[1:]
	}
	name := names[len(names)-1]
	if len(names) > 3 || len(names) > 1 && names[len(names)-2] != p.table {
		return false
	}
	p.space()
	p.text = append(p.text, quoteName(p.quote, p.table)+"."+quoteName(p.quote, name)...)
	if !slices.Contains(p.columns, name) {
		p.columns = append(p.columns, name)
	}
	return true
}

// quoteName quotes a name.
func quoteName(quote byte, name string) string {
	q := string(quote)
	return q + strings.ReplaceAll(name, q, q+q) + q
}
