package dataplane

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Limits of a listing that is accepted from a peer.
const (
	maxListing = 64 << 20
	maxFiles   = 4096
	maxChunks  = 1 << 20 // of a file: 4 TiB
)

// errListing: a peer's listing is malformed.
var errListing = errors.New("dataplane: malformed listing")

// file is one of a directory, with a checksum of every chunk.
type file struct {
	Name string   `json:"name"`
	Size int64    `json:"size"`
	Sums [][]byte `json:"sums"` // SHA-256
}

// listing says what there is to copy.
type listing struct {
	Files []file `json:"files"`
}

// check reports why a listing from outside must not be followed: names that
// lead elsewhere, sizes that do not fit.
func (l *listing) check() error {
	if len(l.Files) > maxFiles {
		return fmt.Errorf("%w: %d files", errListing, len(l.Files))
	}
	seen := map[string]bool{}
	for _, f := range l.Files {
		chunks := (f.Size + ChunkBytes - 1) / ChunkBytes
		switch {
		case !fs.ValidPath(f.Name) || f.Name == "." || filepath.Base(filepath.FromSlash(f.Name)) != f.Name || f.Name[0] == '.' || seen[f.Name]:
			return fmt.Errorf("%w: file %.100q", errListing, f.Name)
		case f.Size < 0 || chunks > maxChunks || chunks != int64(len(f.Sums)):
			return fmt.Errorf("%w: %.100q of %d bytes has %d checksums", errListing, f.Name, f.Size, len(f.Sums))
		}
		for _, s := range f.Sums {
			if len(s) != sha256.Size {
				return fmt.Errorf("%w: %.100q has a checksum of %d bytes", errListing, f.Name, len(s))
			}
		}
		seen[f.Name] = true
	}
	return nil
}

func parseListing(b []byte) (*listing, error) {
	l := new(listing)
	if err := json.Unmarshal(b, l); err != nil {
		return nil, fmt.Errorf("%w: %w", errListing, err)
	}
	return l, l.check()
}

// directory is one whose files are served.
type directory struct {
	dir   string
	names []string

	once sync.Once
	list *listing
	text []byte
	err  error
}

// Directories are those of a node that peers may copy, each under a name.
type Directories struct {
	mu  sync.Mutex
	all map[string]*directory
}

// ServeDirectories lets peers copy what is added.
func ServeDirectories(p *Plane) *Directories {
	d := &Directories{all: map[string]*directory{}}
	p.Handle(MethodList, func(_ context.Context, r *Request) (Reply, error) {
		s, err := d.find(string(r.Body))
		if err != nil {
			return Reply{}, err
		}
		return Reply{Data: [][]byte{s.text}}, s.err
	})
	ServeRanges(p, MethodFile, ChunkBytes, func(ctx context.Context, name []byte, at int64, n int) (func([]byte) error, error) {
		directory, file := path.Split(string(name))
		s, err := d.find(strings.TrimSuffix(directory, "/"))
		if err != nil {
			return nil, err
		}
		return s.find(file, at, n)
	})
	return d
}

// Add lets peers copy the named files of dir, which must not change. They are read, for their
// checksums, when the first peer asks. name has no slashes; it may be empty. What had it before is served no more.
func (d *Directories) Add(name, dir string, files []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all[name] = &directory{dir: dir, names: slices.Clone(files)}
}

// find returns a directory whose files were read.
func (d *Directories) find(name string) (*directory, error) {
	d.mu.Lock()
	s := d.all[name]
	d.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("dataplane: there is no directory %.64q", name)
	}
	s.once.Do(s.read)
	return s, nil
}

func (s *directory) read() {
	s.list = new(listing)
	for _, name := range s.names {
		f, err := sum(filepath.Join(s.dir, name), name)
		if err != nil {
			s.err = err
			return
		}
		s.list.Files = append(s.list.Files, f)
	}
	if s.err = s.list.check(); s.err == nil {
		s.text, s.err = json.Marshal(s.list)
	}
}

// sum reads a file for its checksums.
func sum(path, name string) (file, error) {
	r, err := os.Open(path)
	if err != nil {
		return file{}, fmt.Errorf("dataplane: %w", err)
	}
	defer r.Close()
	f := file{Name: name}
	for {
		h := sha256.New() // which no chunk has to be in memory for
		n, err := io.CopyN(h, r, ChunkBytes)
		if n > 0 {
			f.Sums = append(f.Sums, h.Sum(nil))
			f.Size += n
		}
		switch {
		case errors.Is(err, io.EOF):
			return f, nil
		case err != nil:
			return file{}, fmt.Errorf("dataplane: %w", err)
		}
	}
}

// find opens a file of the listing.
func (s *directory) find(name string, at int64, n int) (func([]byte) error, error) {
	if s.err != nil {
		return nil, s.err
	}
	i := slices.IndexFunc(s.list.Files, func(f file) bool { return f.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("dataplane: there is no file %.64q", name)
	}
	f := &s.list.Files[i]
	if at+int64(n) > f.Size {
		return nil, fmt.Errorf("dataplane: %s: %d bytes at %d of %d", f.Name, n, at, f.Size)
	}
	r, err := os.Open(filepath.Join(s.dir, f.Name))
	if err != nil {
		return nil, fmt.Errorf("dataplane: %w", err)
	}
	return func(b []byte) error {
		defer r.Close()
		if _, err := r.ReadAt(b, at); err != nil {
			return fmt.Errorf("dataplane: %s: %w", r.Name(), err)
		}
		return nil
	}, nil
}

// Progress says how far a copy is.
type Progress struct {
	Bytes, Total int64
	Kept         int64 // bytes that were there already
}

// CopyDirectory makes dir hold the files, of those that the nodes serve under a name, that are wanted (nil:
// all), which must be the same at all of them. What dir holds of it already, whole or in part, is
// checked and kept. progress may be nil.
func CopyDirectory(ctx context.Context, p *Plane, nodes []string, name, dir string, want func(file string) bool, progress func(Progress)) error {
	c := &copying{from: Source{Plane: p, Method: MethodFile, Nodes: nodes}, name: name, dir: dir, progress: progress, buf: make([]byte, ChunkBytes)}
	text, err := c.from.Ask(ctx, Call{Method: MethodList, Body: [][]byte{[]byte(name)}, Max: maxListing}, nil)
	if err != nil {
		return err
	}
	l, err := parseListing(text)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("dataplane: %w", err)
	}
	if want != nil {
		l.Files = slices.DeleteFunc(l.Files, func(f file) bool { return !want(f.Name) })
	}
	for i := range l.Files {
		c.done.Total += l.Files[i].Size
	}
	for i := range l.Files {
		if err := c.file(ctx, &l.Files[i]); err != nil {
			return err
		}
	}
	return nil
}

type copying struct {
	from     Source
	name     string
	dir      string
	progress func(Progress)
	done     Progress
	buf      []byte
}

// file brings one file: chunks that are here and whole are kept.
func (c *copying) file(ctx context.Context, f *file) (err error) {
	to := filepath.Join(c.dir, f.Name)
	if have, err := sum(to, f.Name); err == nil {
		if have.Size == f.Size && slices.EqualFunc(have.Sums, f.Sums, slices.Equal) {
			c.count(f.Size, f.Size)
			return nil
		}
		if err := os.Rename(to, to+partSuffix); err != nil {
			return fmt.Errorf("dataplane: %w", err)
		}
	}
	out, err := openPartial(to, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for k := range f.Sums {
		at := int64(k) * ChunkBytes
		n := int(min(ChunkBytes, f.Size-at))
		good := func(b []byte) error {
			if h := sha256.Sum256(b); !slices.Equal(h[:], f.Sums[k]) {
				return fmt.Errorf("%w: chunk %d of %s", ErrDamaged, k, f.Name)
			}
			return nil
		}
		if _, err := out.ReadAt(c.buf[:n], at); err == nil && good(c.buf[:n]) == nil {
			c.count(int64(n), int64(n))
			continue
		}
		b, err := c.from.Range(ctx, []byte(path.Join(c.name, f.Name)), at, n, good)
		if err != nil {
			return err
		}
		if _, err := out.WriteAt(b, at); err != nil {
			return fmt.Errorf("dataplane: %w", err)
		}
		c.count(int64(n), 0)
	}
	if err := out.Truncate(f.Size); err != nil {
		return fmt.Errorf("dataplane: %w", err)
	}
	return out.Commit()
}

func (c *copying) count(n, kept int64) {
	c.done.Bytes += n
	c.done.Kept += kept
	if c.progress != nil {
		c.progress(c.done)
	}
}
