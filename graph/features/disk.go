package features

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
)

// disk is a store that reads the rows it is asked for from a file.
type disk struct {
	reads
	layout   Layout
	table    *graph.Features // mapped: only its row scales are read
	file     *os.File
	path     string
	offset   int64
	rowBytes int
	work     chan *run
	workers  sync.WaitGroup
	plans    sync.Pool
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
	s := &disk{layout: LayoutOf(f), table: f, file: h, path: file.Path, offset: file.Offset, rowBytes: f.Stride, work: make(chan *run)}
	readers := o.Readers
	if readers == 0 {
		readers = defaultReaders
	}
	for range readers {
		s.workers.Go(s.reader)
	}
	return s, nil
}

func (s *disk) Layout() Layout { return s.layout }

func (s *disk) Read(ctx context.Context, r Request, done func(error)) {
	s.start(func() error {
		if err := r.check(&s.layout); err != nil {
			return err
		}
		if s.table.RowScale != nil {
			err := Guard(func() error {
				for i, id := range r.IDs {
					r.Dst.RowScale[r.slot(i)] = s.table.RowScale[id]
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return s.read(ctx, &r)
	}, done)
}

// read reads the rows of r in the order in which they lie in the file, rows
// that are near each other by one call.
func (s *disk) read(ctx context.Context, r *Request) error {
	p, _ := s.plans.Get().(*plan)
	if p == nil {
		p = new(plan)
	}
	defer s.plans.Put(p)
	p.make(r, s.rowBytes)
	b := &readBatch{store: s, request: r, plan: p}
	var err error
submit:
	for i := range p.runs {
		if b.failed() {
			break
		}
		p.runs[i].batch = b
		b.left.Add(1)
		select {
		case s.work <- &p.runs[i]:
		case <-ctx.Done():
			b.left.Done()
			err = context.Cause(ctx)
			break submit
		}
	}
	b.left.Wait()
	return errors.Join(b.err, err)
}

// readBatch is a read that is cut into runs.
type readBatch struct {
	store   *disk
	request *Request
	plan    *plan
	left    sync.WaitGroup
	mu      sync.Mutex
	err     error
}

func (b *readBatch) failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil
}

func (b *readBatch) fail(err error) {
	b.mu.Lock()
	if b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
}

func (s *disk) reader() {
	var buf []byte
	for r := range s.work {
		if !r.batch.failed() {
			if err := s.readRun(r, &buf); err != nil {
				r.batch.fail(err)
			}
		}
		r.batch.left.Done()
	}
}

// readRun reads the file from the first to the last row of a run and hands out
// its rows.
func (s *disk) readRun(r *run, buf *[]byte) error {
	b, n := r.batch, s.rowBytes
	keys := b.plan.keys[r.first:r.last]
	from, to := int64(keys[0]>>32), int64(keys[len(keys)-1]>>32)+1
	at := s.offset + from*int64(n)
	dst := b.request.Dst
	if len(keys) == 1 {
		return s.readAt(dst.Data[int(uint32(keys[0]))*dst.Stride:][:n], at)
	}
	size := int(to-from) * n
	if cap(*buf) < size {
		*buf = make([]byte, size)
	}
	p := (*buf)[:size]
	if err := s.readAt(p, at); err != nil {
		return err
	}
	for _, k := range keys {
		row := p[(int64(k>>32)-from)*int64(n):][:n]
		copy(dst.Data[int(uint32(k))*dst.Stride:], row)
	}
	return nil
}

func (s *disk) readAt(p []byte, at int64) error {
	n, err := s.file.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("features: %s: it ends at offset %d, inside the rows: it was shortened; restore it and start again: %w", s.path, at+int64(n), io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("features: %s: cannot read %d bytes at offset %d: %w", s.path, len(p)-n, at+int64(n), err)
}

func (s *disk) Close() error {
	s.wg.Wait()
	close(s.work)
	s.workers.Wait()
	return s.file.Close()
}
