// Package store keeps datasets on disk: a directory of flat, aligned, checksummed
// files, one for each array and a manifest, that is mapped into memory as it is.
//
// Create writes a dataset that is in memory, Writer one that is not; Open maps it, View
// for the time of a function. What lies in a mapping is read under graph.Guard. Errors
// about the content of a store wrap graph.ErrFormat.
package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/internal/regular"
	"github.com/gnnactor/gnnactor/internal/fault"
)

// Store is a dataset in a directory of flat, aligned, checksummed files,
// mapped into memory: opening it takes the same time at any size, processes
// that open it share its memory, and it is not on the Go heap.
//
// The files must not be changed while a Store is open. Its methods may be
// called from any goroutine.
type Store struct {
	dir   string
	m     *manifest
	ds    *graph.Dataset
	maps  [][]byte // header and payload of each array
	parts Part     // that are open
	piece *Piece   // nil: a whole graph
	old   []string // arrays whose files have no checksums of blocks
	mute  func()   // ends the checks after panics
	once  sync.Once
	err   error

	files map[string]arrayFile // of the arrays that are mapped
}

// arrayFile is an array's file, kept open: another may take its name, but not its
// place in the mapping.
type arrayFile struct {
	*os.File
	size int64 // when it was mapped
}

// Open maps the store in dir. It checks the manifest, the header, size and
// version of every file, and that they fit together, but reads no payload:
// Verify does that. Close ends the mapping; nothing that came from Dataset may
// be used afterwards. Errors about the content wrap graph.ErrFormat.
func Open(dir string) (*Store, error) { return OpenPart(dir, Whole) }

// OpenPart is Open for a process that reads some parts, or for a copy that has no others: it
// opens no file of another part, nor looks for it. Without Topology the dataset's graph is
// one of graph.Elsewhere, and EdgeTimes are nil; without EdgeValues the graph has no weights
// and the edges no features; without NodeValues NodeFeatures say what the rows are like and
// have no Data, and zeros for row scales.
func OpenPart(dir string, parts Part) (*Store, error) {
	s, err := open(dir, parts)
	if err == nil && s.m.Piece != nil {
		err = dataerr.Bad("%s is piece %d of %d of a divided graph and no graph by itself; give the directory that it lies in", dir, s.m.Piece.Index, s.m.Piece.Pieces)
		return nil, errors.Join(err, s.Close())
	}
	return s, err
}

// open opens a whole graph or a piece of one.
func open(dir string, parts Part) (*Store, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, m: m, parts: parts, files: map[string]arrayFile{}}
	payload := make(map[string][]byte, len(m.Arrays))
	for i := range m.Arrays {
		if away(m.Arrays[i].Name, parts) {
			continue
		}
		p, err := s.mapArray(&m.Arrays[i])
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		payload[m.Arrays[i].Name] = p
	}
	s.ds = m.dataset(payload)
	s.leaveOut()
	s.mute = fault.Suspect(s.damage)
	g := s.ds.Graph
	if !s.Has(Topology) {
		return s, nil
	}
	err = graph.Guard(func() error {
		if g.Indptr[0] != 0 || g.Indptr[g.NumNodes()] != g.NumEdges() {
			return dataerr.Bad("%s: it spans [%d, %d), but there are %d edges; import the data again",
				s.path(arrays.Indptr), g.Indptr[0], g.Indptr[g.NumNodes()], g.NumEdges())
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if m.Piece != nil {
		s.piece = s.asPiece(payload)
	}
	return s, nil
}

// readManifest reads the manifest of the store in dir, and checks it.
func readManifest(dir string) (*manifest, error) {
	b, err := regular.ReadSmall(filepath.Join(dir, Manifest), maxManifestBytes)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			if _, serr := os.Stat(dir); serr == nil {
				return nil, dataerr.Bad("%s is not a store: it has no %s; import it first", dir, Manifest)
			}
		}
		return nil, fmt.Errorf("graph: open store: %w", err)
	}
	m, err := decodeManifest(b)
	if err != nil {
		return nil, dataerr.Bad("%s: %w; import the data again", filepath.Join(dir, Manifest), err)
	}
	if err := m.check(); err != nil {
		return nil, dataerr.Bad("%s: %w; import the data again", filepath.Join(dir, Manifest), err)
	}
	return m, nil
}

func (s *Store) path(array string) string { return filepath.Join(s.dir, array+arrayFileSuffix) }

func checkFile(a *arrays.Info, f *os.File) (*arrayHeader, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() < headerSize+a.Bytes {
		return nil, fmt.Errorf("the file has %d bytes, want %d", st.Size(), headerSize+a.Bytes)
	}
	b := make([]byte, headerSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, err
	}
	h, err := decodeHeader(b)
	if err != nil {
		return nil, err
	}
	if h.dtype.String() != a.Type || h.rows != a.Rows || h.cols != a.Cols || hex.EncodeToString(h.sum[:]) != a.SHA256 {
		return nil, fmt.Errorf("offset 8: its header (%d×%d of %s) is not the one that the manifest names (%d×%d of %s): the file belongs to another store",
			h.rows, h.cols, h.dtype, a.Rows, a.Cols, a.Type)
	}
	if want := headerSize + a.Bytes + h.trailer(); st.Size() != want {
		return nil, fmt.Errorf("the file has %d bytes, want %d", st.Size(), want)
	}
	return &h, nil
}

func (s *Store) mapArray(a *arrays.Info) ([]byte, error) {
	f, err := regular.Open(s.path(a.Name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("graph: open store: %w, but %s names it; import the data again, or copy the file from where the store came from", err, Manifest)
	}
	if err != nil {
		return nil, fmt.Errorf("graph: open store: %w", err)
	}
	s.files[a.Name] = arrayFile{File: f} // Close closes it
	h, err := checkFile(a, f)
	if err != nil {
		return nil, dataerr.Bad("%s: %w; import the data again", s.path(a.Name), err)
	}
	s.files[a.Name] = arrayFile{f, headerSize + a.Bytes + h.trailer()}
	if h.version < 2 {
		s.old = append(s.old, a.Name)
	}
	b, err := mapFile(f, headerSize+a.Bytes)
	if err != nil {
		return nil, fmt.Errorf("graph: map %s: %w", s.path(a.Name), err)
	}
	s.maps = append(s.maps, b)
	return b[headerSize:len(b):len(b)], nil
}

// Dataset returns the data. It lies in the mapping: it is read-only, and lives
// until Close.
func (s *Store) Dataset() *graph.Dataset { return s.ds }

// NodeFeaturesFile returns where Dataset's node features lie: row i is at
// offset + i·Stride of the file path. ok is false when there are none.
func (s *Store) NodeFeaturesFile() (path string, offset int64, ok bool) {
	if s.m.array(arrays.NodeFeatures) == nil || !s.Has(NodeValues) {
		return "", 0, false
	}
	return s.path(arrays.NodeFeatures), headerSize, true
}

// Bytes returns the bytes of all values.
func (s *Store) Bytes() (n int64) {
	for i := range s.m.Arrays {
		n += s.m.Arrays[i].Bytes
	}
	return n
}

// Close ends the mapping. Closing twice is allowed.
func (s *Store) Close() error {
	s.once.Do(func() {
		if s.mute != nil {
			s.mute()
		}
		for _, m := range s.maps {
			s.err = errors.Join(s.err, unmapFile(m))
		}
		for _, f := range s.files {
			s.err = errors.Join(s.err, f.Close())
		}
		s.maps, s.ds = nil, nil
	})
	return s.err
}

// Verify reads every byte of the store's files and compares it with the
// checksums that were taken when the store was written, and checks the graph's
// invariants. It reports the first damaged file; the error wraps graph.ErrFormat, or the cause
// of ctx when that ends first.
func (s *Store) Verify(ctx context.Context) error {
	if err := s.verifyFiles(ctx); err != nil {
		return err
	}
	ds := *s.ds
	if !s.Has(NodeValues) { // there are no values to validate
		ds.NodeFeatures = nil
	}
	if err := ds.Validate(ctx); err != nil {
		return fmt.Errorf("%w (in %s); import the data again", err, s.dir)
	}
	return graph.Guard(func() error {
		if s.m.SplitLabels != splitLabels(s.ds.Graph.NumNodes(), s.ds) {
			return dataerr.Bad("%s: the labels' second checksum does not match; import the data again", filepath.Join(s.dir, Manifest))
		}
		return nil
	})
}

// verifyFiles compares the files with their checksums.
func (s *Store) verifyFiles(ctx context.Context) error {
	b, err := regular.ReadSmall(filepath.Join(s.dir, Manifest), maxManifestBytes)
	if err != nil {
		return fmt.Errorf("graph: verify: %w", err)
	}
	m, err := decodeManifest(b)
	if err != nil {
		return dataerr.Bad("%s: %w; import the data again", filepath.Join(s.dir, Manifest), err)
	}
	if m.Checksum != s.m.Checksum {
		return dataerr.Bad("%s: it changed after the store was opened; open it again", filepath.Join(s.dir, Manifest))
	}
	for i := range m.Arrays {
		a := &m.Arrays[i]
		if away(a.Name, s.parts) {
			continue
		}
		if err := s.checkArray(ctx, a, true, false); err != nil {
			return err
		}
	}
	return nil
}
