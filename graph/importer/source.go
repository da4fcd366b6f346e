package importer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/internal/regular"
)

// source opens the files of what is imported, a directory or one file, and adds
// up their bytes. It opens regular files only, and in a directory none that a
// link puts outside of it.
type source struct {
	dir   string
	root  *os.Root         // of dir; nil: links are followed wherever they lead
	sizes map[string]int64 // of the files that were opened
	bytes int64            // their sum
}

// openSource takes path, and what it is a link to, as the user's word; the links
// inside of a directory are the word of who made the data.
func openSource(path string, followLinks bool) (*source, error) {
	s := &source{dir: path, sizes: map[string]int64{}}
	st, err := os.Stat(path)
	if err == nil && st.IsDir() && !followLinks {
		s.root, err = os.OpenRoot(path)
	}
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	return s, nil
}

func (s *source) close() {
	if s.root != nil {
		s.root.Close()
	}
}

// open opens a regular file.
func (s *source) open(path string) (*os.File, error) {
	f, st, err := s.openAny(path)
	if err != nil {
		return nil, err
	}
	if err := regular.Check(path, st); err != nil {
		f.Close()
		return nil, err
	}
	s.bytes += st.Size() - s.sizes[path]
	s.sizes[path] = st.Size()
	return f, nil
}

// readDir lists a directory.
func (s *source) readDir(path string) ([]os.DirEntry, error) {
	f, st, err := s.openAny(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !st.IsDir() {
		return nil, dataerr.Bad("%s is not a directory", path)
	}
	list, err := f.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	slices.SortFunc(list, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

func (s *source) openAny(path string) (f *os.File, st os.FileInfo, err error) {
	rel := path
	if s.root != nil {
		rel, err = filepath.Rel(s.dir, path)
	}
	switch {
	case err != nil:
	case s.root != nil:
		f, err = s.root.OpenFile(rel, regular.Flags, 0)
	default:
		f, err = os.OpenFile(rel, regular.Flags, 0)
	}
	if err == nil {
		if st, err = f.Stat(); err != nil {
			f.Close()
		}
	}
	var pe *fs.PathError
	switch {
	case err == nil:
		return f, st, nil
	case s.outside(err):
		return nil, nil, dataerr.Bad("%s: a link on the way leads out of %s, or is absolute; copy what it leads to, or allow such links (the option FollowLinks of Import, --follow-links)", path, s.dir)
	case errors.Is(err, syscall.ENXIO):
		return nil, nil, dataerr.Bad("%s is a socket or a device; a regular file is needed", path)
	case errors.As(err, &pe):
		pe.Op, pe.Path = "open", path // as the user knows it
	}
	return nil, nil, fmt.Errorf("graph: %w", err)
}

// outside tells whether err is what the Root answers to a path that leaves it, which
// has no name of its own.
func (s *source) outside(err error) bool {
	if s.root == nil {
		return false
	}
	_, leaving := s.root.Lstat("..")
	var pe *fs.PathError
	return errors.As(leaving, &pe) && errors.Is(err, pe.Err)
}

// exists tells whether there is something of that name, be it a link to nowhere:
// what is there is not passed over in silence.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
