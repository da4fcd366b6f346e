//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

// tables are those of which a device has a copy, for all its queues.
type tables struct {
	mu     sync.Mutex
	places map[input]place // by where they are in the host's memory
	bytes  int
}

// place is where a table is on the device; address 0: there was no room.
type place struct {
	address uintptr
	scales  uintptr         // of its rows
	table   *graph.Features // so that no other memory has its address
	foreign bool            // the memory is a slab's
}

// Tables may take a memory's bytes divided by tableShare.
const tableShare = 2

// add tells of a table in the device's memory, remove of its end.
func (t *tables) add(f *graph.Features, p place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.places == nil {
		t.places = map[input]place{}
	}
	t.places[inputOf(f)] = p
}

func (t *tables) remove(f *graph.Features) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.places, inputOf(f))
}

func inputOf(f *graph.Features) input { return input{uintptr(unsafe.Pointer(&f.Data[0])), len(f.Data)} }

// Keep brings a table to the device, unless it is there, or all tables would take more
// than half of the device's memory; its rows then go over as batches need them. It
// panics with an *Error.
func (q *Queue) Keep(f *graph.Features) {
	t := &q.device.tables
	if len(f.Data) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.places[inputOf(f)]; known {
		return
	}
	p := place{table: f}
	scales := (len(f.Data) + alignment - 1) / alignment * alignment
	bytes := scales + 4*len(f.RowScale)
	if t.bytes+bytes <= q.device.Memory/tableShare {
		err := q.open()
		if err == nil {
			err = q.device.call(cuMemAlloc, fmt.Sprintf("%d bytes for a table of features", bytes), uintptr(unsafe.Pointer(&p.address)), uintptr(bytes))
		}
		if e := new(Error); errors.As(err, &e) && e.Code == outOfMemory && e.Call == names[cuMemAlloc] {
			p.address = 0
		} else if err != nil {
			panic(err)
		}
	}
	if t.places == nil {
		t.places = map[input]place{}
	}
	if p.address != 0 {
		p.scales = p.address + uintptr(scales)
		t.bytes += bytes
		q.device.memory.Lock()
		q.device.take(int64(bytes))
		q.device.memory.Unlock()
		t.places[inputOf(f)] = place{address: p.address} // to be given back, should an upload fail
		q.upload(p.address, unsafe.Pointer(&f.Data[0]), len(f.Data))
		if len(f.RowScale) > 0 {
			q.upload(p.scales, unsafe.Pointer(&f.RowScale[0]), 4*len(f.RowScale))
		}
		if err := q.Wait(); err != nil { // other queues read it, too
			panic(err)
		}
	}
	t.places[inputOf(f)] = p
}

// resident returns f's rows where ids say, if the device has the table.
func (q *Queue) resident(f *graph.Features, ids []uint32) (s source, ok bool) {
	if len(f.Data) == 0 {
		return s, false
	}
	t := &q.device.tables
	t.mu.Lock()
	p := t.places[inputOf(f)]
	t.mu.Unlock()
	if p.table == nil || p.address == 0 {
		return s, false
	}
	s = source{data: p.address, stride: int64(f.Stride), columnScale: of(q, f.ColScale), ids: of(q, ids), dtype: int64(f.DType)}
	if f.RowScale != nil {
		s.rowScale = p.scales
	}
	return s, true
}
