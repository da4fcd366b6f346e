//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/pool"
)

// stagings is how many pieces of pinned memory rows go through: while one is copied to the
// device, rows are read into another.
const stagings = 2

// slab is a table of the device's that rows of a store are brought to, through pinned memory,
// on a stream of its own: compute goes on meanwhile.
type slab struct {
	from   features.Store
	layout features.Layout
	o      devices.RowsOptions
	table  *graph.Features
	free   chan *staging
	all    []*staging
	events []*uintptr
	reads  sync.WaitGroup

	bytes, mapped atomic.Int64 // of rows that went over, and of those that the device gathered

	host     uintptr // where the device finds the host's table, which is registered; 0: it does not
	byDevice bool    // rows are read from there
	way      string  // says so, and why

	opened, another uintptr   // events
	openedAt        time.Time // of opened, by the host's clock

	mu sync.Mutex // of launches
	q  *Queue
}

// staging is a piece of the host's pinned memory, and one of the device's that it is copied to.
// It holds rows one after the other, or the ids of those that the device gathers, then the slots
// that they go to and their scales.
type staging struct {
	pinned     []byte
	device     uintptr
	begin, end uintptr // events: of its last copy
	rows       int     // of that; 0: it is over
}

// Rows is devices.Device's.
func (d *Device) Rows(from features.Store, o devices.RowsOptions) (devices.Rows, error) {
	s := &slab{from: from, layout: from.Layout(), o: o, free: make(chan *staging, stagings), q: d.NewQueue()}
	s.q.urgent = true
	err := s.open()
	if err == nil {
		err = s.choose()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// alignedUp is n, or the next multiple of 16 bytes.
func alignedUp(n int) int { return (n + 15) &^ 15 }

// stagingBytes is what n rows take of a staging, or, of those that the device gathers, their ids
// in place of their values.
func (s *slab) stagingBytes(n int, byDevice bool) int {
	size := s.layout.Cols * s.layout.DType.Size()
	scales := s.layout.RowBytes() - size
	if byDevice {
		size = 4
	}
	return alignedUp(n*size) + n*(scales+4)
}

func (s *slab) open() error {
	d, l := s.q.device, &s.layout
	piece := s.o.Pinned / stagings
	if s.stagingBytes(1, false) > piece {
		return fmt.Errorf("cuda: %d bytes of pinned memory are %d pieces of %d, and a row with its slot takes %d: allow more", s.o.Pinned, stagings, piece, s.stagingBytes(1, false))
	}
	data := max(s.o.Rows*l.Cols*l.DType.Size(), 1)
	at, err := s.q.allocate(data)
	if err != nil {
		return err
	}
	s.table = &graph.Features{Rows: s.o.Rows, Cols: l.Cols, DType: l.DType, Data: unsafe.Slice((*byte)(pointer(at)), data), Stride: l.Cols * l.DType.Size(), ColScale: l.ColScale}
	p := place{address: at, table: s.table, foreign: true}
	if l.RowScaled {
		if p.scales, err = s.q.allocate(4 * s.o.Rows); err != nil {
			return err
		}
		s.table.RowScale = unsafe.Slice((*float32)(pointer(p.scales)), s.o.Rows)
	}
	for range stagings {
		x := new(staging)
		s.all = append(s.all, x)
		var host uintptr
		if err := d.call(cuMemHostAlloc, fmt.Sprintf("%d bytes of pinned memory of the host", piece), uintptr(unsafe.Pointer(&host)), uintptr(piece), 0); err != nil {
			return err
		}
		x.pinned = unsafe.Slice((*byte)(pointer(host)), piece)
		if x.device, err = s.q.allocate(piece); err != nil {
			return err
		}
		for _, e := range []*uintptr{&x.begin, &x.end} {
			if err := s.newEvent(e); err != nil {
				return err
			}
		}
		s.free <- x
	}
	d.tables.add(s.table, p)
	for _, e := range []*uintptr{&s.opened, &s.another} {
		if err := s.newEvent(e); err != nil {
			return err
		}
	}
	return s.setClock()
}

// setClock finds when by the host's clock the event was from which the device counts: of some, that of which it hears soonest.
func (s *slab) setClock() error {
	d, best := s.q.device, time.Duration(math.MaxInt64)
	for range 5 {
		at := time.Now() // before it, so that no copy ends later than it is told of
		if err := d.call(cuEventRecord, "", s.another, s.q.stream); err != nil {
			return err
		}
		if err := d.call(cuEventSynchronize, "", s.another); err != nil {
			return err
		}
		if took := time.Since(at); took < best {
			best, s.openedAt = took, at
			s.opened, s.another = s.another, s.opened
		}
	}
	return nil
}

func (s *slab) newEvent(e *uintptr) error {
	s.events = append(s.events, e)
	return s.q.device.call(cuEventCreate, "", uintptr(unsafe.Pointer(e)), blockingSync)
}

const blockingSync = 1 // who waits for an event does not spin

// Table is devices.Rows's.
func (s *slab) Table() *graph.Features { return s.table }

// Moved is devices.Rows's.
func (s *slab) Moved() (all, mapped int64) { return s.bytes.Load(), s.mapped.Load() }

// Way is devices.Rows's.
func (s *slab) Way() string { return s.way }

// Layout is the store's.
func (s *slab) Layout() features.Layout { return s.layout }

// Read is the store's, into the slab's table alone.
func (s *slab) Read(ctx context.Context, r features.Request, done func(error)) {
	s.reads.Go(func() { done(pool.Recovered(func() error { return s.read(ctx, &r) })) })
}

func (s *slab) read(ctx context.Context, r *features.Request) error {
	if r.Dst != s.table || len(r.Slots) != len(r.IDs) {
		return fmt.Errorf("cuda: %d rows for %d slots of a table that is not this slab's", len(r.IDs), len(r.Slots))
	}
	for _, at := range r.Slots {
		if int(at) >= s.table.Rows {
			return fmt.Errorf("cuda: slot %d is out of range [0, %d)", at, s.table.Rows)
		}
	}
	if s.byDevice {
		for _, id := range r.IDs {
			if int(id) >= s.o.Host.Rows {
				return fmt.Errorf("cuda: row %d is out of range [0, %d)", id, s.o.Host.Rows)
			}
		}
	}
	return s.bring(ctx, r.IDs, r.Slots, s.byDevice)
}

// bring has rows in their slots when it returns.
func (s *slab) bring(ctx context.Context, ids, slots []uint32, byDevice bool) error {
	for len(ids) > 0 {
		x, err := s.take(ctx)
		n := 0
		if err == nil {
			n, err = s.piece(ctx, x, ids, slots, byDevice)
			if ids, slots = ids[n:], slots[n:]; err == nil && len(ids) == 0 {
				err = s.settle(x) // and so everything that was copied before
			}
			s.free <- x
		}
		if err != nil { // nothing writes to the slots once this returns
			return errors.Join(err, s.q.Wait())
		}
	}
	return nil
}

// take returns a staging that nothing is copied from.
func (s *slab) take(ctx context.Context) (*staging, error) {
	select {
	case x := <-s.free:
		if err := s.settle(x); err != nil {
			s.free <- x
			return nil, err
		}
		return x, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// settle waits until x's copy is over.
func (s *slab) settle(x *staging) error {
	n := x.rows
	if n == 0 {
		return nil
	}
	d := s.q.device
	x.rows = 0
	err := d.call(cuEventSynchronize, "", x.end)
	if err != nil || s.o.Copied == nil {
		return err
	}
	ended, err := d.elapsed(s.opened, x.end)
	if err != nil {
		return err
	}
	took, err := d.elapsed(x.begin, x.end)
	if err == nil {
		end := s.openedAt.Add(ended)
		s.o.Copied(n, end.Add(-took), end)
	}
	return err
}

// elapsed returns the time between two events that are over.
func (d *Device) elapsed(from, to uintptr) (time.Duration, error) {
	var milliseconds float32
	err := d.call(cuEventElapsedTime, "", uintptr(unsafe.Pointer(&milliseconds)), from, to)
	return time.Duration(float64(milliseconds) * float64(time.Millisecond)), err
}

// piece reads as many of the rows as x holds, or has the device do so, and queues their way to
// the slots.
func (s *slab) piece(ctx context.Context, x *staging, ids, slots []uint32, byDevice bool) (n int, err error) {
	n = min(len(ids), (len(x.pinned)-16)*len(ids)/s.stagingBytes(len(ids), byDevice))
	for n < len(ids) && s.stagingBytes(n+1, byDevice) <= len(x.pinned) {
		n++
	}
	size := s.table.Stride
	if byDevice {
		size = 4
	}
	data := n * size
	at := alignedUp(data)
	scales := at + 4*n
	table := &graph.Features{Rows: n, Cols: s.layout.Cols, DType: s.layout.DType, Data: x.pinned[:data], Stride: size, ColScale: s.layout.ColScale}
	if s.layout.RowScaled {
		table.RowScale = unsafe.Slice((*float32)(unsafe.Pointer(&x.pinned[scales])), n)
	}
	if !byDevice {
		err = features.Read(ctx, s.from, features.Request{IDs: ids[:n], Dst: table})
	} else {
		copy(unsafe.Slice((*uint32)(unsafe.Pointer(&x.pinned[0])), n), ids)
		for i := range table.RowScale {
			table.RowScale[i] = s.o.Host.RowScale[ids[i]]
		}
	}
	if err != nil {
		return n, err
	}
	copy(unsafe.Slice((*uint32)(unsafe.Pointer(&x.pinned[at])), n), slots)
	return n, graph.Guard(func() error { return s.send(x, n, at, scales, byDevice) })
}

// send queues the copy of n rows, or of their ids, and their way from there, or from the host's
// table, to the slots, which lie at at, with their scales.
func (s *slab) send(x *staging, n, at, scales int, byDevice bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, size, bytes := s.q.device, s.table.Stride, s.stagingBytes(n, byDevice)
	if err := d.call(cuEventRecord, "", x.begin, s.q.stream); err != nil {
		return err
	}
	if err := d.call(cuMemcpyHtoDAsync, "", x.device, uintptr(unsafe.Pointer(&x.pinned[0])), uintptr(bytes), s.q.stream); err != nil {
		return err
	}
	rows := int64(n * s.layout.RowBytes())
	s.bytes.Add(rows)
	d.toDevice.Add(int64(bytes))
	to := uintptr(unsafe.Pointer(&s.table.Data[0]))
	if byDevice {
		s.mapped.Add(rows)
		d.toDevice.Add(int64(n * size))
		s.scatter(s.host, s.o.Host.Stride, x.device, x.device+uintptr(at), to, n, size)
	} else {
		s.scatter(x.device, size, 0, x.device+uintptr(at), to, n, size)
	}
	if s.table.RowScale != nil {
		s.scatter(x.device+uintptr(scales), 4, 0, x.device+uintptr(at), uintptr(unsafe.Pointer(&s.table.RowScale[0])), n, 4)
	}
	if err := d.call(cuEventRecord, "", x.end, s.q.stream); err != nil {
		return err
	}
	x.rows = n
	return nil
}

// scatter queues the way of n rows of size bytes, those of ids unless that is 0, from where they
// begin every stride bytes to the slots that lie at to.
func (s *slab) scatter(from uintptr, stride int, ids, to, table uintptr, n, size int) {
	name, word := "scatter_rows_1", 1
	for w, by := range map[int]string{4: "scatter_rows_4", 16: "scatter_rows_16"} {
		if w > word && (size|stride|int(from)|int(table))%w == 0 {
			name, word = by, w
		}
	}
	s.q.run(name, blocks(n*size/word), 1, threads, from, int64(stride/word), ids, to, table, n, size/word)
}

// Close waits for reads and gives the memory back.
func (s *slab) Close() error {
	s.reads.Wait()
	d := s.q.device
	if s.table != nil {
		d.tables.remove(s.table)
	}
	var errs []error
	if d.isLost() {
		s.host = 0 // it goes with the context
	} else {
		errs = append(errs, s.q.Wait())
		for _, x := range s.all {
			errs = append(errs, s.settle(x))
			if len(x.pinned) > 0 {
				errs = append(errs, d.call(cuMemFreeHost, "", uintptr(unsafe.Pointer(&x.pinned[0]))))
			}
		}
		for _, e := range s.events {
			if *e != 0 {
				errs = append(errs, d.call(cuEventDestroy, "", *e))
			}
		}
	}
	if s.host != 0 {
		errs = append(errs, d.call(cuMemHostUnregister, "", uintptr(unsafe.Pointer(&s.o.Host.Data[0]))))
		s.host = 0
	}
	s.all, s.events, s.table = nil, nil, nil
	return errors.Join(append(errs, s.q.Close())...)
}
