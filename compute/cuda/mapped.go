//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/rng"
)

// How memory of the host's is registered: for kernels' eyes, which do not write to it.
const (
	registerMapped   = 2
	registerReadOnly = 8
)

// register pins a table of the host's that kernels read, and finds out where they do.
func (s *slab) register() error {
	d, data := s.q.device, s.o.Host.Data
	p := uintptr(unsafe.Pointer(&data[0]))
	what := fmt.Sprintf("%d bytes of features", len(data))
	err := d.call(cuMemHostRegister, what, p, uintptr(len(data)), registerMapped|registerReadOnly)
	if e := new(Error); errors.As(err, &e) && e.Code == notSupported { // but memory that may be written can be had
		err = d.call(cuMemHostRegister, what, p, uintptr(len(data)), registerMapped)
	}
	if err != nil {
		return err
	}
	var at uintptr
	if err = d.call(cuMemHostGetDevicePointer, what, uintptr(unsafe.Pointer(&at)), p, 0); err != nil {
		return errors.Join(err, d.call(cuMemHostUnregister, "", p))
	}
	s.host = at
	return nil
}

// choose decides who gathers rows. No bit depends on it.
func (s *slab) choose() error {
	h := s.o.Host
	if h == nil || len(h.Data) == 0 || s.o.Gather == devices.ByHost || s.table.Rows == 0 {
		s.way = "gathered by the host"
		return nil
	}
	if err := s.register(); err != nil {
		if s.q.device.isLost() || s.o.Gather == devices.ByDevice {
			return err
		}
		s.way = fmt.Sprintf("gathered by the host, as the table cannot be registered: %v", err)
		return nil
	}
	if s.o.Gather == devices.ByDevice {
		s.byDevice, s.way = true, "gathered by the device from the host's memory"
		return nil
	}
	return s.measure()
}

// trials are how often either way is tried on how many rows.
const trials, trialRows = 3, 4096

// measure has rows from all over the table brought both ways, to slots that nobody has yet, and
// takes the faster one.
func (s *slab) measure() error {
	copied, d := s.o.Copied, s.q.device
	s.o.Copied = nil
	before := d.toDevice.Load()
	defer func() {
		s.o.Copied = copied
		s.bytes.Store(0)
		s.mapped.Store(0)
		d.toDevice.Store(before)
	}()
	n := min(trialRows, s.table.Rows, s.o.Host.Rows)
	ids, key := make([]uint32, n), rng.New(1)
	var best [2]time.Duration // of the host, of the device
	for trial := range trials {
		for way := range best {
			for i := range ids {
				ids[i] = uint32(key.Uintn(uint64((trial*len(best)+way)*n+i), uint64(s.o.Host.Rows)))
			}
			begin := time.Now()
			if err := s.bring(context.Background(), ids, count[uint32](n), way == 1); err != nil {
				return err
			}
			if took := time.Since(begin); trial == 0 || took < best[way] {
				best[way] = took
			}
		}
	}
	s.byDevice = best[1] < best[0]
	who := "the host"
	if s.byDevice {
		who = "the device from the host's memory"
	}
	s.way = fmt.Sprintf("gathered by %s: %d rows take the host %.3g ms, the device %.3g ms", who, n, 1e3*best[0].Seconds(), 1e3*best[1].Seconds())
	return nil
}
