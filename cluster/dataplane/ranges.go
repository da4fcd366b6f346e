package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// ChunkBytes travel at once.
const ChunkBytes = 4 << 20

// ErrNobody: no node is left that a transfer could go on with.
var ErrNobody = errors.New("dataplane: no node is left to go on with")

// errRange: what a peer asks or sends is no range.
var errRange = errors.New("dataplane: malformed range")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A range as it is written: its offset and bytes, little-endian, and the name; what is
// put follows, and after the bytes of either direction their CRC-32C.
const (
	rangeBytes = 8 + 8
	sumBytes   = 4
	maxName    = 1 << 10
)

func appendRange(name []byte, at int64, n int) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, rangeBytes+len(name)), uint64(at))
	return append(binary.LittleEndian.AppendUint64(b, uint64(n)), name...)
}

// decodeRange reads a range of at most limit bytes. Its data, if any follow the name,
// lie at the end of b.
func decodeRange(b []byte, limit int) (name []byte, at int64, n int, err error) {
	if len(b) < rangeBytes {
		return nil, 0, 0, fmt.Errorf("%w: %d bytes", errRange, len(b))
	}
	offset, count := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	if at = int64(offset); at < 0 || count > uint64(limit) || at+int64(count) < at {
		return nil, 0, 0, fmt.Errorf("%w: %d bytes at %d; at most %d", errRange, count, offset, limit)
	}
	return b[rangeBytes:], at, int(count), nil
}

// decodePut reads a range and its data.
func decodePut(b []byte) (name []byte, at int64, data []byte, err error) {
	rest, at, n, err := decodeRange(b, ChunkBytes)
	if err != nil {
		return nil, 0, nil, err
	}
	split := len(rest) - n - sumBytes
	if split < 0 || split > maxName {
		return nil, 0, nil, fmt.Errorf("%w: %d bytes of a name and %d of data", errRange, len(rest), n)
	}
	if data, err = checked(rest[split:], n); err != nil {
		return nil, 0, nil, err
	}
	return rest[:split], at, data, nil
}

// checked takes the checksum off n bytes.
func checked(b []byte, n int) ([]byte, error) {
	if len(b) != n+sumBytes {
		return nil, fmt.Errorf("%w: %d bytes, not %d", errRange, len(b), n+sumBytes)
	}
	if crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, fmt.Errorf("%w on the way", ErrDamaged)
	}
	return b[:n], nil
}

func appendSum(b, data []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(data, castagnoli))
}

// Find says whether n bytes lie at an offset of what is called name. If so, read is called
// once, to fill so many. It may be called several times at once.
type Find func(ctx context.Context, name []byte, at int64, n int) (read func(b []byte) error, err error)

// ServeRanges lets peers read ranges of at most limit bytes. There is memory for a range when
// find has found it, and not before: whoever asks for what is not there is given none.
func ServeRanges(p *Plane, method Method, limit int, find Find) {
	p.Handle(method, func(ctx context.Context, r *Request) (Reply, error) {
		name, at, n, err := decodeRange(r.Body, limit)
		if err != nil {
			return Reply{}, err
		}
		read, err := find(ctx, name, at, n)
		if err != nil {
			return Reply{}, err
		}
		b := make([]byte, n, n+sumBytes)
		if err := read(b); err != nil {
			return Reply{}, err
		}
		return Reply{Data: [][]byte{appendSum(b, b)}}, nil
	})
}

// Source is the nodes that something can be read from, and the method by which they
// serve it. The first one is asked; one that fails is taken out.
type Source struct {
	Plane  *Plane
	Method Method
	Nodes  []string

	buf []byte
}

// Ask asks the nodes one after another until an answer is good. good may be nil.
func (s *Source) Ask(ctx context.Context, call Call, good func([]byte) error) ([]byte, error) {
	var errs []error
	for len(s.Nodes) > 0 {
		call.Node = s.Nodes[0]
		b, err := s.Plane.Ask(ctx, call)
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
		s.Nodes = slices.Clone(s.Nodes[1:])
	}
	return nil, fmt.Errorf("%w: %w", ErrNobody, errors.Join(errs...))
}

// Range reads n bytes at an offset of what is called name. They are valid until the
// next call. good, if it is not nil, says what is wrong with them.
func (s *Source) Range(ctx context.Context, name []byte, at int64, n int, good func([]byte) error) ([]byte, error) {
	if cap(s.buf) < n+sumBytes {
		s.buf = make([]byte, n+sumBytes)
	}
	call := Call{Method: s.Method, Body: [][]byte{appendRange(name, at, n)}, Into: s.buf, Max: n + sumBytes}
	b, err := s.Ask(ctx, call, func(b []byte) error {
		b, err := checked(b, n)
		if err == nil && good != nil {
			err = good(b)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}

// All reads size bytes, chunk at once, and hands them to take in order.
func (s *Source) All(ctx context.Context, name []byte, size int64, chunk int, take func(at int64, b []byte) error) error {
	for at := int64(0); at < size; {
		b, err := s.Range(ctx, name, at, int(min(int64(chunk), size-at)), nil)
		if err == nil {
			err = take(at, b)
		}
		if err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}

// receiveRanges lets peers put ranges: take gets what a peer has at an offset of what it
// calls name, and returns how many bytes of that are here, from the first on.
func receiveRanges(p *Plane, method Method, take func(peer string, name []byte, at int64, data []byte) (have int64, err error)) {
	p.Handle(method, func(_ context.Context, r *Request) (Reply, error) {
		name, at, data, err := decodePut(r.Body)
		if err != nil {
			return Reply{}, err
		}
		have, err := take(r.Peer, name, at, data)
		if err != nil {
			return Reply{}, err
		}
		return Reply{Data: [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(have))}}, nil
	})
}

// putAll gives a node size bytes of r, from where an earlier one of them stopped. It
// returns when the node has all of them.
func putAll(ctx context.Context, p *Plane, node string, method Method, name []byte, size int64, r io.ReaderAt) error {
	ask := func(at int64, data []byte) (int64, error) {
		body := [][]byte{appendRange(name, at, len(data)), data, appendSum(nil, data)}
		b, err := p.Ask(ctx, Call{Node: node, Method: method, Body: body, Max: 8})
		if err != nil {
			return 0, err
		}
		if len(b) != 8 || binary.LittleEndian.Uint64(b) > uint64(size) {
			return 0, fmt.Errorf("dataplane: node %s answers %x, not how much it has of %d bytes", node, b, size)
		}
		return int64(binary.LittleEndian.Uint64(b)), nil
	}
	buf := make([]byte, min(ChunkBytes, size))
	have, err := ask(0, nil)
	for err == nil && have < size {
		data := buf[:min(int64(len(buf)), size-have)]
		if _, err := r.ReadAt(data, have); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("dataplane: %w", err)
		}
		var now int64
		if now, err = ask(have, data); err == nil && now <= have {
			err = fmt.Errorf("dataplane: node %s has %d bytes, and had %d", node, now, have)
		}
		have = now
	}
	return err
}
