package main

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Lengths of names in the database, in bytes.
const (
	maxDataset = 255 // datasets.name
	maxPath    = 700 // files.path
	// maxRoot leaves the root whole in every abbreviated dataset name.
	maxRoot = maxDataset - abbreviationLength - 1
)

// An abbreviated name ends in a mark that no other encoded name has, and a hash.
const (
	abbreviation       = `\~`
	hashLength         = 16
	abbreviationLength = len(abbreviation) + 2*hashLength
)

// encode returns a name as it is kept in the database. A name on disk may be any bytes; a text column
// holds UTF-8 of a limited length, and to MySQL two names that differ in trailing spaces are equal.
// So bytes that are not UTF-8, control characters, backslashes and a last space are written as \xNN,
// and a name that is too long is cut and a hash of the whole is added. Names that differ stay
// different.
func encode(name string, limit int) string {
	var b strings.Builder
	cut := 0 // where an abbreviated name is cut
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		last := i+n == len(name)
		if r == utf8.RuneError && n == 1 || unicode.IsControl(r) || r == '\\' || r == ' ' && last {
			for _, c := range []byte(name[i : i+n]) {
				b.WriteString(`\x`)
				b.WriteString(hex.EncodeToString([]byte{c}))
			}
		} else {
			b.WriteString(name[i : i+n])
		}
		if b.Len() <= limit-abbreviationLength {
			cut = b.Len()
		}
		i += n
	}
	if b.Len() <= limit {
		return b.String()
	}
	hash := sha256.Sum256([]byte(name))
	return b.String()[:cut] + abbreviation + hex.EncodeToString(hash[:hashLength])
}

// decode returns the name that was encoded, unless it was abbreviated.
func decode(encoded string) (name string, ok bool) {
	if !strings.Contains(encoded, `\`) {
		return encoded, true
	}
	var b strings.Builder
	for encoded != "" {
		i := strings.IndexByte(encoded, '\\')
		if i < 0 {
			b.WriteString(encoded)
			break
		}
		b.WriteString(encoded[:i])
		encoded = encoded[i:]
		if len(encoded) < 4 || encoded[1] != 'x' {
			return "", false
		}
		c, err := strconv.ParseUint(encoded[2:4], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		encoded = encoded[4:]
	}
	return b.String(), true
}

// longNames remembers the paths of the folders that a run has seen and whose names are abbreviated.
type longNames struct {
	mu    sync.Mutex
	paths map[string]string
}

// dataset returns the dataset name of a folder.
func (l *longNames) dataset(path string) string {
	name := encode(path, maxDataset)
	if strings.Contains(name, abbreviation) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.paths == nil {
			l.paths = make(map[string]string)
		}
		l.paths[name] = path
	}
	return name
}

// path returns the folder of a dataset, if it is known.
func (l *longNames) path(dataset string) (path string, ok bool) {
	if path, ok = decode(dataset); ok {
		return path, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	path, ok = l.paths[dataset]
	return path, ok
}

// within reports whether a dataset is the root folder or lies below it.
func within(root, dataset string) bool {
	below := root
	if !strings.HasSuffix(below, string(filepath.Separator)) {
		below += string(filepath.Separator)
	}
	return dataset == encode(root, maxDataset) || strings.HasPrefix(dataset, encode(below, maxDataset))
}
