package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The generated part of benchmarks.md is between these lines; what is around it is written by people.
const (
	beginMark = "<!-- begin: go run ./bench -out docs -->"
	endMark   = "<!-- end -->"
)

// readResults reads results.json.
func readResults(path string) (*Results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("-render: %w", err)
	}
	r := new(Results)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("-render: %s holds no results of this program: %w", path, err)
	}
	return r, nil
}

// publish prints the tables or, given a folder, writes tables, plots and results into it.
func publish(r *Results, out string, stdout io.Writer) error {
	if out == "" {
		_, err := io.WriteString(stdout, r.markdown(nil))
		return err
	}
	plots, err := r.plots()
	if err != nil {
		return err
	}
	dir := filepath.Join(out, "benchmarks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for _, p := range plots {
		if err := os.WriteFile(filepath.Join(dir, p.file), p.svg, 0o644); err != nil {
			return err
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return insertInto(filepath.Join(out, "benchmarks.md"), r.markdown(plots))
}

// insertInto replaces what is between the marks of a page. A page that is not there is made.
func insertInto(path, text string) error {
	page, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		page, err = []byte("# Benchmarks\n\n"+beginMark+"\n"+endMark+"\n"), nil
	}
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(page), beginMark)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s: the lines %q and %q are missing, between which the results go", path, beginMark, endMark)
	}
	return os.WriteFile(path, []byte(before+beginMark+"\n"+text+endMark+after), 0o644)
}
