package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// disk is what the program needs of a file system. It is not an fs.FS, whose names are UTF-8.
type disk interface {
	Open(path string) (fs.ReadDirFile, error)
	Lstat(path string) (fs.FileInfo, error)
}

type osDisk struct{}

func (osDisk) Open(path string) (fs.ReadDirFile, error) { return os.Open(path) }
func (osDisk) Lstat(path string) (fs.FileInfo, error)   { return os.Lstat(path) }

// isGone reports whether an error says that there is nothing at a path.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// list calls visit with the entries of a folder, a batch at a time.
func (a *app) list(ctx context.Context, path string, visit func([]fs.DirEntry) error) error {
	dir, err := a.disk.Open(path)
	if err != nil {
		return unreadableError{err}
	}
	defer func() { _ = dir.Close() }()
	for ctx.Err() == nil {
		entries, err := dir.ReadDir(a.batch)
		if len(entries) > 0 {
			if err := visit(entries); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unreadableError{err}
		}
	}
	return ctx.Err()
}

// unreadableError tells that the disk is at fault.
type unreadableError struct{ error }

func (e unreadableError) Unwrap() error { return e.error }

// copy reads a file that has been catalogued with a size.
func (a *app) copy(path string, size int64) error {
	info, err := a.disk.Lstat(path) // opening a pipe would wait for its other end
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("no regular file any more")
	}
	f, err := a.disk.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil {
		return err
	}
	if info.Size() != size {
		return fmt.Errorf("changed from %d to %d bytes since it was catalogued", size, info.Size())
	}
	_, err = io.CopyN(io.Discard, f, min(size, a.read))
	return err
}

// fileAt returns the path of a file as catalogued.
func (a *app) fileAt(ctx context.Context, folder, encoded string) (string, error) {
	if name, ok := decode(encoded); ok {
		return join(folder, name), nil
	}
	// The name is abbreviated: find the one that it stands for.
	found := errors.New("found")
	var path string
	err := a.list(ctx, folder, func(entries []fs.DirEntry) error {
		for _, e := range entries {
			if encode(e.Name(), maxPath) == encoded {
				path = join(folder, e.Name())
				return found
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, found):
		return path, nil
	case err == nil:
		err = fmt.Errorf("%s in %s: %w", encoded, folder, fs.ErrNotExist)
	}
	return "", err
}

func join(folder, name string) string {
	if os.IsPathSeparator(folder[len(folder)-1]) {
		return folder + name
	}
	return folder + string(filepath.Separator) + name
}
