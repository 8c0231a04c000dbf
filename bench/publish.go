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

// page is what a kind of results is published as.
type page struct {
	name  string // of the page without .md, and of the folder beside it
	title string
	// begin is the line that the generated part comes after. It ends with endMark; what is around it is written by people.
	begin string
}

var benchmarks = page{name: "benchmarks", title: "Benchmarks", begin: "<!-- begin: go run ./bench -out docs -->"}

const endMark = "<!-- end -->"

// report is what one run has measured.
type report interface {
	// page is where it is published.
	page() page
	// markdown writes the results as tables. Plots are in a folder beside the text, if there are any.
	markdown(plots []plot) string
	plots() ([]plot, error)
	// wrong returns an error if anything was counted wrong or could not be measured.
	wrong() error
}

func (*Results) page() page { return benchmarks }

// readResults reads results.json.
func readResults[R any](path string) (*R, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("-render: %w", err)
	}
	r := new(R)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("-render: %s holds no results of this program: %w", path, err)
	}
	return r, nil
}

// publish prints the tables or, given a folder, writes tables, plots and results into it.
func publish(r report, out string, stdout io.Writer) error {
	if out == "" {
		_, err := io.WriteString(stdout, r.markdown(nil))
		return err
	}
	plots, err := r.plots()
	if err != nil {
		return err
	}
	to := r.page()
	dir := filepath.Join(out, to.name)
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
	return to.insert(filepath.Join(out, to.name+".md"), r.markdown(plots))
}

// insert replaces what is between the marks of the page in a file. One that is not there is made.
func (p page) insert(path, text string) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte("# "+p.title+"\n\n"+p.begin+"\n"+endMark+"\n"), nil
	}
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(old), p.begin)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s: the lines %q and %q are missing, between which the results go", path, p.begin, endMark)
	}
	return os.WriteFile(path, []byte(before+p.begin+"\n"+text+endMark+after), 0o644)
}
