package features

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/pool"
)

// disk is a store that reads the rows it is asked for from a file: through
// io_uring where the system has it, else by a pool of readers.
type disk struct {
	reads
	layout   Layout
	table    *graph.Features // mapped: only its row scales are read
	file     *os.File
	fd       int32
	path     string
	offset   int64
	rowBytes int
	plans    sync.Pool
	rings    rings
	work     chan job // for the readers; nil: there are rings
	readers  sync.WaitGroup
}

const defaultReaders = 32

// openDisk returns a store over file, in which the rows of f lie.
func openDisk(f *graph.Features, file File, o Options) (Store, error) {
	if f.Stride != f.Cols*f.DType.Size() {
		return nil, fmt.Errorf("features: %s: its rows are not dense", file.Path)
	}
	h, err := os.Open(file.Path)
	if err != nil {
		return nil, fmt.Errorf("features: %w", err)
	}
	adviseRandom(h)
	s := &disk{layout: LayoutOf(f), table: f, file: h, fd: int32(h.Fd()), path: file.Path, offset: file.Offset, rowBytes: f.Stride}
	if !o.noRings && s.rings.start() == nil {
		return s, nil
	}
	readers := o.Readers
	if readers < 1 {
		readers = defaultReaders
	}
	s.work = make(chan job)
	for range readers {
		s.readers.Go(s.serve)
	}
	return s, nil
}

func (s *disk) Layout() Layout { return s.layout }

func (s *disk) Read(ctx context.Context, r Request, done func(error)) {
	s.start(func() error {
		if err := r.check(&s.layout); err != nil {
			return err
		}
		if err := s.readScales(&r); err != nil {
			return err
		}
		if s.rowBytes == 0 {
			return nil
		}
		p, _ := s.plans.Get().(*plan)
		if p == nil {
			p = new(plan)
		}
		defer s.plans.Put(p)
		p.make(&r, s.rowBytes)
		if s.work == nil {
			return s.readByRing(ctx, p, r.Dst)
		}
		return s.readByPool(ctx, p, r.Dst)
	}, done)
}

// readScales copies the rows' scales, of which there are few bytes per row, from
// the mapping.
func (s *disk) readScales(r *Request) error {
	if s.table.RowScale == nil {
		return nil
	}
	for i, id := range r.IDs {
		r.Dst.RowScale[r.slot(i)] = s.table.RowScale[id]
	}
	return nil
}

// job is a run of a read that readers share.
type job struct {
	*pooledRead
	run run
}

// pooledRead is a read that is under way on the readers.
type pooledRead struct {
	plan *plan
	dst  *graph.Features
	left sync.WaitGroup
	mu   sync.Mutex
	err  error
}

func (b *pooledRead) error() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// readByPool reads the runs of p on the readers.
func (s *disk) readByPool(ctx context.Context, p *plan, dst *graph.Features) error {
	b := &pooledRead{plan: p, dst: dst}
	for _, r := range p.runs {
		if b.error() != nil {
			break
		}
		b.left.Add(1)
		select {
		case s.work <- job{b, r}:
			continue
		case <-ctx.Done():
		}
		b.left.Done()
		b.left.Wait()
		return context.Cause(ctx)
	}
	b.left.Wait()
	return b.err
}

// serve is a reader.
func (s *disk) serve() {
	var buf []byte
	for j := range s.work {
		if j.error() == nil {
			err := pool.Recovered(func() error { return s.readRun(j.plan.keys[j.run.first:j.run.last], j.dst, &buf) })
			if err != nil {
				j.mu.Lock()
				if j.err == nil {
					j.err = err
				}
				j.mu.Unlock()
			}
		}
		j.left.Done()
	}
}

// extent returns where in the file the rows from the first to the last key lie.
func (s *disk) extent(keys []uint64) (at int64, size int) {
	from, to := int64(keys[0]>>32), int64(keys[len(keys)-1]>>32)+1
	return s.offset + from*int64(s.rowBytes), int(to-from) * s.rowBytes
}

// row returns where the row of a key goes.
func (s *disk) row(dst *graph.Features, key uint64) []byte {
	return dst.Data[int(uint32(key))*dst.Stride:][:s.rowBytes]
}

// readRun reads the file from the first to the last row of keys and hands out
// the rows. buf is scratch memory.
func (s *disk) readRun(keys []uint64, dst *graph.Features, buf *[]byte) error {
	at, size := s.extent(keys)
	if len(keys) == 1 {
		return s.readAt(s.row(dst, keys[0]), at)
	}
	if cap(*buf) < size {
		*buf = make([]byte, max(size, runBytes))
	}
	p := (*buf)[:size]
	if err := s.readAt(p, at); err != nil {
		return err
	}
	for _, k := range keys {
		copy(s.row(dst, k), p[int(k>>32-keys[0]>>32)*s.rowBytes:])
	}
	return nil
}

func (s *disk) readAt(p []byte, at int64) error {
	n, err := s.file.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	at += int64(n)
	if errors.Is(err, io.EOF) {
		return fault.Damaged(fmt.Errorf("features: %s: cannot read offset %d: the file ends before it, so it was shortened; restore it and start again: %w", s.path, at, io.ErrUnexpectedEOF))
	}
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("features: %s: cannot read %d bytes at offset %d: %w; check the disk", s.path, len(p)-n, at, err)
}

func (s *disk) Close() error {
	s.wg.Wait()
	if s.work != nil {
		close(s.work)
		s.readers.Wait()
	}
	return errors.Join(s.rings.close(), s.file.Close())
}
