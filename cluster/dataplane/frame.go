package dataplane

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"google.golang.org/grpc/mem"
)

// A frame is a header and at most chunk bytes:
//
//	0  kind   uint8
//	1  zero   uint8
//	2  method uint16  of a request
//	4  size   uint32  of the payload
//	8  ask    uint64  which ask it belongs to
//	16 value  uint64  request, reply: bytes in all; grant: bytes that may have been sent by then
//
// in little-endian order. A request and a reply begin with their first bytes
// and go on in parts, in order.
const (
	headerSize = 24
	chunk      = 1 << 20
	maxFrame   = headerSize + chunk

	// small payloads are copied behind their header.
	small = 4 << 10
	// maxErrorText bounds the text of an error on the wire.
	maxErrorText = 4 << 10

	transportWindow = 16 << 20
	transportBuffer = 1 << 20

	serviceName = "gnnactor.Data"
	streamName  = "Session"
)

type kind uint8

const (
	kindRequest     kind = iota + 1 // asker → answerer: method, value = size in all
	kindRequestPart                 // more of it
	kindReply                       // answerer → asker: value = size in all
	kindReplyPart                   // more of it
	kindFail                        // answerer → asker: payload = why
	kindCancel                      // asker → answerer: nobody waits any longer
	kindGrantAsks                   // value = request bytes that may have been sent by then
	kindGrantData                   // the same for reply bytes
	kindLast
)

type header struct {
	kind   kind
	method Method
	size   int
	ask    uint64
	value  uint64
}

func (h *header) put(b []byte) {
	b[0], b[1] = byte(h.kind), 0
	binary.LittleEndian.PutUint16(b[2:], uint16(h.method))
	binary.LittleEndian.PutUint32(b[4:], uint32(h.size))
	binary.LittleEndian.PutUint64(b[8:], h.ask)
	binary.LittleEndian.PutUint64(b[16:], h.value)
}

// parseHeader reads the header of a frame of length bytes.
func parseHeader(b *[headerSize]byte, length int) (header, error) {
	h := header{
		kind: kind(b[0]), method: Method(binary.LittleEndian.Uint16(b[2:])), size: int(binary.LittleEndian.Uint32(b[4:])),
		ask: binary.LittleEndian.Uint64(b[8:]), value: binary.LittleEndian.Uint64(b[16:]),
	}
	if h.kind == 0 || h.kind >= kindLast || b[1] != 0 {
		return h, fmt.Errorf("%w: frame of kind %d", ErrProtocol, b[0])
	}
	if h.size > chunk || h.size != length-headerSize {
		return h, fmt.Errorf("%w: frame of %d bytes says that it carries %d", ErrProtocol, length, h.size)
	}
	return h, nil
}

// frame is one to be sent. A small payload is copied; a larger one is sent from
// where it lies, and taken is called when the transport has read it.
type frame struct {
	header
	what    string // of a request or a reply: it is counted as
	payload []byte
	taken   mem.BufferPool
}

func (f *frame) buffers() mem.BufferSlice {
	f.size = len(f.payload)
	if f.size <= small {
		b := make([]byte, headerSize+f.size)
		f.put(b)
		copy(b[headerSize:], f.payload)
		if f.taken != nil {
			f.taken.Put(nil)
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}
	}
	b := make([]byte, headerSize)
	f.put(b)
	payload := f.payload
	return mem.BufferSlice{mem.SliceBuffer(b), mem.NewBuffer(&payload, f.taken)}
}

// codec lets frames through as they are. Sending takes a *frame; receiving
// takes a *session, which puts the bytes where they belong, or silence.
type codec struct{}

func (codec) Name() string { return "gnnactor-raw" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return v.(*frame).buffers(), nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	if s, ok := v.(*session); ok {
		return s.receive(data)
	}
	return fmt.Errorf("%w: a frame of %d bytes where there may be none", ErrProtocol, data.Len())
}

// silence is what is received from a peer that may not send any frame.
type silence struct{}

// cursor reads a frame's bytes out of the transport's buffers.
type cursor struct {
	rest mem.BufferSlice
	off  int // into the first buffer
}

// read fills dst; the caller knows that there is enough.
func (c *cursor) read(dst []byte) {
	for len(dst) > 0 {
		b := c.rest[0].ReadOnlyData()[c.off:]
		n := copy(dst, b)
		dst = dst[n:]
		if c.off += n; n == len(b) {
			c.rest, c.off = c.rest[1:], 0
		}
	}
}

// append reads n bytes more of total to the end of dst, whose memory follows what really came; false: there are not so many, or
// none where some are missing.
func (c *cursor) append(dst *[]byte, n int, total uint64) bool {
	have := uint64(len(*dst))
	need := have + uint64(n)
	if need > total || n == 0 && total > 0 {
		return false
	}
	if need > uint64(cap(*dst)) {
		*dst = append(make([]byte, 0, min(max(2*have, need), total)), *dst...)
	}
	*dst = (*dst)[:need]
	c.read((*dst)[have:])
	return true
}

// BytesOf returns the memory of x, which is how values travel.
func BytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
