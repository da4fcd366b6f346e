// Package fetch copies a directory of large files, such as a graph's topology,
// from peers over the data plane: in chunks that are checked one by one, from
// whichever peer is there, and, after an interruption, from where it stopped.
package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
)

// The data plane's methods of this package.
const (
	MethodList  dataplane.Method = 48
	MethodChunk dataplane.Method = 49
)

// chunkBytes travel at once and have one checksum.
const chunkBytes = 4 << 20

// Limits of a listing that is accepted from a peer.
const (
	maxListing = 64 << 20
	maxFiles   = 4096
	maxChunks  = 1 << 20 // of a file: 4 TiB
)

// ErrListing: a peer's listing is malformed.
var ErrListing = errors.New("fetch: malformed listing")

// ErrNobody: no peer is left that a copy could go on from.
var ErrNobody = errors.New("fetch: no node is left to copy from")

// file is one of a directory, with a checksum of every chunk.
type file struct {
	Name string   `json:"name"`
	Size int64    `json:"size"`
	Sums [][]byte `json:"sums"` // SHA-256
}

func (f *file) chunk(i int) (at int64, n int) {
	at = int64(i) * chunkBytes
	return at, int(min(chunkBytes, f.Size-at))
}

// listing says what there is to copy.
type listing struct {
	Files []file `json:"files"`
}

// check reports why a listing from outside must not be followed: names that
// lead elsewhere, sizes that do not fit.
func (l *listing) check() error {
	if len(l.Files) > maxFiles {
		return fmt.Errorf("%w: %d files", ErrListing, len(l.Files))
	}
	seen := map[string]bool{}
	for _, f := range l.Files {
		chunks := (f.Size + chunkBytes - 1) / chunkBytes
		switch {
		case !fs.ValidPath(f.Name) || f.Name == "." || filepath.Base(filepath.FromSlash(f.Name)) != f.Name || f.Name[0] == '.' || seen[f.Name]:
			return fmt.Errorf("%w: file %.100q", ErrListing, f.Name)
		case f.Size < 0 || chunks > maxChunks || chunks != int64(len(f.Sums)):
			return fmt.Errorf("%w: %.100q of %d bytes has %d checksums", ErrListing, f.Name, f.Size, len(f.Sums))
		}
		for _, s := range f.Sums {
			if len(s) != sha256.Size {
				return fmt.Errorf("%w: %.100q has a checksum of %d bytes", ErrListing, f.Name, len(s))
			}
		}
		seen[f.Name] = true
	}
	return nil
}

func parseListing(b []byte) (*listing, error) {
	l := new(listing)
	if err := json.Unmarshal(b, l); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListing, err)
	}
	return l, l.check()
}

// Server serves the files of one directory.
type Server struct {
	dir   string
	names []string

	once sync.Once
	list *listing
	text []byte
	err  error
}

// Serve lets peers copy the named files of dir, which must not change. They are
// read, for their checksums, when the first peer asks.
func Serve(p *dataplane.Plane, dir string, names []string) *Server {
	s := &Server{dir: dir, names: slices.Clone(names)}
	p.Handle(MethodList, func(context.Context, *dataplane.Request) (dataplane.Reply, error) {
		s.once.Do(s.read)
		return dataplane.Reply{Data: [][]byte{s.text}}, s.err
	})
	p.Handle(MethodChunk, s.chunk)
	return s
}

func (s *Server) read() {
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
		return file{}, fmt.Errorf("fetch: %w", err)
	}
	defer r.Close()
	f := file{Name: name}
	buf := make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			h := sha256.Sum256(buf[:n])
			f.Sums = append(f.Sums, h[:])
			f.Size += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return f, nil
		case err != nil:
			return file{}, fmt.Errorf("fetch: %w", err)
		}
	}
}

// chunk serves one chunk: the number of the file in the listing, and its own.
func (s *Server) chunk(_ context.Context, r *dataplane.Request) (dataplane.Reply, error) {
	s.once.Do(s.read)
	if s.err != nil {
		return dataplane.Reply{}, s.err
	}
	if len(r.Body) != 8 {
		return dataplane.Reply{}, fmt.Errorf("fetch: a request of %d bytes", len(r.Body))
	}
	i, k := int64(binary.LittleEndian.Uint32(r.Body)), int64(binary.LittleEndian.Uint32(r.Body[4:]))
	if i >= int64(len(s.list.Files)) || k >= int64(len(s.list.Files[i].Sums)) {
		return dataplane.Reply{}, fmt.Errorf("fetch: there is no chunk %d of file %d", k, i)
	}
	f := &s.list.Files[i]
	at, n := f.chunk(int(k))
	in, err := os.Open(filepath.Join(s.dir, f.Name))
	if err != nil {
		return dataplane.Reply{}, fmt.Errorf("fetch: %w", err)
	}
	defer in.Close()
	buf := make([]byte, n)
	if _, err := in.ReadAt(buf, at); err != nil {
		return dataplane.Reply{}, fmt.Errorf("fetch: %s: %w", f.Name, err)
	}
	return dataplane.Reply{Data: [][]byte{buf}}, nil
}

// Progress says how far a copy is.
type Progress struct {
	Bytes, Total int64
	Kept         int64 // bytes that were there already
}

// Copy makes dir hold what the nodes serve, which must be the same at all of
// them. What dir holds of it already, whole or in part, is checked and kept.
// Until a file is whole its name ends in ".part". progress may be nil.
func Copy(ctx context.Context, p *dataplane.Plane, nodes []string, dir string, progress func(Progress)) error {
	c := &copying{p: p, nodes: slices.Clone(nodes), dir: dir, progress: progress}
	text, err := c.ask(ctx, dataplane.Call{Method: MethodList, Max: maxListing}, nil)
	if err != nil {
		return err
	}
	l, err := parseListing(text)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	for i := range l.Files {
		c.done.Total += l.Files[i].Size
	}
	for i := range l.Files {
		if err := c.file(ctx, i, &l.Files[i]); err != nil {
			return err
		}
	}
	return nil
}

type copying struct {
	p        *dataplane.Plane
	nodes    []string // the first one is asked; one that fails is taken out
	dir      string
	progress func(Progress)
	done     Progress
	buf      []byte
}

// ask asks the nodes one after another until an answer is good.
func (c *copying) ask(ctx context.Context, call dataplane.Call, good func([]byte) error) ([]byte, error) {
	var errs []error
	for len(c.nodes) > 0 {
		call.Node = c.nodes[0]
		b, err := c.p.Ask(ctx, call)
		if err == nil && good != nil {
			err = good(b)
		}
		if err == nil {
			return b, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		errs = append(errs, fmt.Errorf("node %s: %w", call.Node, err))
		c.nodes = c.nodes[1:]
	}
	return nil, fmt.Errorf("%w: %w", ErrNobody, errors.Join(errs...))
}

// file brings one file.
func (c *copying) file(ctx context.Context, i int, f *file) (err error) {
	path := filepath.Join(c.dir, f.Name)
	if have, err := sum(path, f.Name); err == nil {
		if have.Size == f.Size && slices.EqualFunc(have.Sums, f.Sums, slices.Equal) {
			c.count(f.Size, f.Size)
			return nil
		}
		if err := os.Rename(path, path+".part"); err != nil { // its good chunks stay
			return fmt.Errorf("fetch: %w", err)
		}
	}
	out, err := os.OpenFile(path+".part", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	defer func() {
		if e := out.Close(); err == nil && e != nil {
			err = fmt.Errorf("fetch: %w", e)
		}
		if err == nil {
			err = os.Rename(path+".part", path)
		}
	}()
	if c.buf == nil {
		c.buf = make([]byte, chunkBytes)
	}
	for k := range f.Sums {
		at, n := f.chunk(k)
		if _, err := out.ReadAt(c.buf[:n], at); err == nil && matches(c.buf[:n], f.Sums[k]) {
			c.count(int64(n), int64(n))
			continue
		}
		body := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(i)), uint32(k))
		b, err := c.ask(ctx, dataplane.Call{Method: MethodChunk, Body: [][]byte{body}, Into: c.buf, Max: n}, func(b []byte) error {
			if !matches(b, f.Sums[k]) {
				return fmt.Errorf("fetch: chunk %d of %s is damaged", k, f.Name)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if _, err := out.WriteAt(b, at); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		c.count(int64(n), 0)
	}
	if err := out.Truncate(f.Size); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	if err := out.Sync(); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	return nil
}

func matches(b, want []byte) bool {
	h := sha256.Sum256(b)
	return slices.Equal(h[:], want)
}

func (c *copying) count(n, kept int64) {
	c.done.Bytes += n
	c.done.Kept += kept
	if c.progress != nil {
		c.progress(c.done)
	}
}
