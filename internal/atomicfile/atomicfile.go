// Package atomicfile replaces files: whoever opens one, after a crash too, finds
// what it held before or what it holds now, whole.
//
// A file is written beside the one that it is to replace, under a name that ends in
// ".tmp-" and a number, and locked while somebody writes it: what a process that was
// killed left behind is known by that nobody holds its lock, and is removed by the
// next one that writes the same file, and by Clean.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gnnactor/gnnactor/internal/dirlock"
)

// ErrNotDurable: the new file is in its place, but a crash may bring the old one back.
var ErrNotDurable = errors.New("the file was replaced, but its directory could not be brought to the disk")

var errNoFile = errors.New("that is no file")

// File is one that is to replace another. Its owner writes to it, and calls Replace
// or Abort.
type File struct {
	*os.File
	path    string
	release func() error // of the lock
}

const temporary = ".tmp-"

// Create begins to replace the file at path, which need not exist. mode is the new
// file's, whatever the process's umask. What is there and no file, such as a device or
// a pipe, is not replaced, also where a link leads to it.
func Create(path string, mode fs.FileMode) (*File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w (%v); name a file", path, errNoFile, info.Mode().Type())
	}
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	if err := Clean(dir, base+temporary); err != nil {
		return nil, err
	}
	// It takes the name of a temporary when it is held: others may not think it left behind.
	f, err := os.CreateTemp(dir, "."+base+".new-*")
	if err != nil {
		return nil, err
	}
	a := &File{File: f, path: path, release: func() error { return nil }}
	if release, err := dirlock.Try(f.Name()); err == nil {
		a.release = release
	}
	name := a.temporary()
	if err := errors.Join(f.Chmod(mode), os.Rename(f.Name(), name)); err != nil {
		return nil, errors.Join(err, f.Close(), a.release(), removeIfThere(f.Name()), removeIfThere(name))
	}
	return a, nil
}

// temporary is where the file lies until it replaces the other.
func (f *File) temporary() string {
	dir, base := filepath.Split(f.Name())
	at := strings.LastIndex(base, ".new-")
	return filepath.Join(dir, base[:at]+temporary+base[at+len(".new-"):])
}

// Finish brings what was written to the disk and closes the file. Where several files
// are to be replaced, each is finished before the first is.
func (f *File) Finish() error { return errors.Join(f.Sync(), f.Close()) }

// Replace puts the file, which is finished, in its place. An error other than
// ErrNotDurable means that the old file is still there.
func (f *File) Replace() error {
	return errors.Join(Rename(f.temporary(), f.path), f.unlock())
}

// Abort removes the file, at any time before Replace or after it has failed.
func (f *File) Abort() error {
	err := f.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(err, f.unlock(), removeIfThere(f.temporary()))
}

func (f *File) unlock() error {
	release := f.release
	f.release = func() error { return nil }
	return release()
}

// Write makes path hold what write writes, or leaves it as it was.
func Write(path string, mode fs.FileMode, write func(w io.Writer) error) error {
	f, err := Create(path, mode)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Finish()
	}
	if err != nil {
		return errors.Join(err, f.Abort())
	}
	if err = f.Replace(); err != nil && !errors.Is(err, ErrNotDurable) {
		err = errors.Join(err, f.Abort())
	}
	return err
}

// Rename puts a file whose content is on the disk in the place of another in the same
// directory, and brings that to the disk, too.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(to)); err != nil {
		return fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	return nil
}

// SyncDir brings a directory's entries to the disk, where the system can.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrInvalid) || errors.Is(err, os.ErrPermission) {
		err = nil // the file system or the system does not sync directories
	}
	return errors.Join(err, d.Close())
}

// Clean removes what killed processes left in dir of files whose names begin with
// prefix. What cannot be removed, such as another user's, is in nobody's way.
func Clean(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "."+prefix) || !strings.Contains(e.Name(), temporary) || !e.Type().IsRegular() {
			continue
		}
		left := filepath.Join(dir, e.Name())
		if release, err := dirlock.Try(left); err == nil {
			_ = os.Remove(left)
			_ = release()
		}
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
