package messages

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// What who samples a divided graph asks the node that has some pieces, and is answered, packed as batches
// are: ids in as many bytes as they need, nodes that are asked about counted from their piece's first.

// Flags of asks and of answers say what there is beside ids.
const (
	askBeside = 1 << iota
	askSet
)

const (
	answerEdges = 1 << iota
	answerDegrees
	answerWeights
)

// AppendAsks appends questions, packed, which are of one hop of one batch, want the same, and have one set, to dst.
func AppendAsks(dst []byte, asks []sampling.Ask, b pieces.Borders) []byte {
	q := &asks[0]
	beside := slices.ContainsFunc(asks, func(q sampling.Ask) bool { return len(q.Beside) > 0 })
	flags := askBeside*one(beside) | askSet*one(q.Want == sampling.WantAmong)
	dst = append(dst, byte(q.Want), flags, byte(q.Hop), byte(len(q.ID.Phase)))
	dst = append(dst, q.ID.Phase...)
	for _, n := range []int{q.ID.Epoch, q.ID.Batch, q.ID.Micro, q.ID.Of} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(q.Key))
	if flags&askSet != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(q.Set)))
		last := uint32(0)
		for _, u := range q.Set {
			dst = binary.AppendUvarint(dst, uint64(u-last))
			last = u
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(asks)))
	for i := range asks {
		q := &asks[i]
		first, w := b[q.Owner], width(int(b[q.Owner+1]-b[q.Owner]))
		dst = binary.AppendUvarint(dst, uint64(q.Owner))
		dst = binary.AppendUvarint(dst, uint64(len(q.Nodes)))
		for _, v := range q.Nodes {
			for k, rest := 0, v-first; k < w; k, rest = k+1, rest>>8 {
				dst = append(dst, byte(rest))
			}
		}
		for _, x := range q.Beside {
			dst = binary.LittleEndian.AppendUint64(dst, x)
		}
	}
	return dst
}

// ReadAsks reads what AppendAsks wrote. Bytes from elsewhere are safe to pass: what is wrong gives an error that
// wraps ErrMessage, and memory is bounded by a small multiple of len(data). That a node is of its piece is not checked.
func ReadAsks(data []byte, b pieces.Borders) ([]sampling.Ask, error) {
	p := &packed{b: data}
	asks, err := p.asks(b)
	if err == nil {
		err = p.err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: questions for rows: %w", ErrMessage, err)
	}
	return asks, nil
}

func (p *packed) asks(b pieces.Borders) ([]sampling.Ask, error) {
	var q sampling.Ask
	head := p.take(4, 1)
	if head == nil {
		return nil, p.err
	}
	flags := head[1]
	q.Want, q.Hop = sampling.Want(head[0]), int(head[2])
	q.ID.Phase = string(p.take(int(head[3]), 1))
	for _, n := range []*int{&q.ID.Epoch, &q.ID.Batch, &q.ID.Micro, &q.ID.Of} {
		*n = p.count(0)
	}
	if key := p.take(8, 1); key != nil {
		q.Key = rng.Key(binary.LittleEndian.Uint64(key))
	}
	if flags&askSet != 0 {
		q.Set = make([]uint32, p.count(1))
		last := uint64(0)
		for i := range q.Set {
			if last += uint64(p.count(0)); last >= uint64(b.Nodes()) && p.err == nil {
				return nil, fmt.Errorf("node %d of %d", last, b.Nodes())
			}
			q.Set[i] = uint32(last)
		}
	}
	n := p.count(2)
	if n > len(b)-1 {
		return nil, fmt.Errorf("questions about %d pieces of %d", n, len(b)-1)
	}
	asks := make([]sampling.Ask, n)
	for i := range asks {
		q.Owner = p.count(0)
		if p.err == nil && q.Owner >= len(b)-1 {
			return nil, fmt.Errorf("piece %d of %d", q.Owner, len(b)-1)
		}
		if p.err != nil {
			return nil, p.err
		}
		w := width(int(b[q.Owner+1] - b[q.Owner]))
		q.Nodes = make([]uint32, p.count(w))
		p.ids(q.Nodes, w)
		for k := range q.Nodes {
			q.Nodes[k] += b[q.Owner]
		}
		if q.Beside = nil; flags&askBeside != 0 {
			raw := p.take(len(q.Nodes), 8)
			for at := 0; at < len(raw); at += 8 {
				q.Beside = append(q.Beside, binary.LittleEndian.Uint64(raw[at:]))
			}
		}
		asks[i] = q
	}
	if len(p.b) > 0 && p.err == nil {
		return nil, fmt.Errorf("%d bytes follow them", len(p.b))
	}
	return asks, nil
}

// AppendAnswers appends answers, packed, to dst; nodes is how many the whole graph has.
func AppendAnswers(dst []byte, answers []sampling.Answer, nodes int) []byte {
	for i := range answers {
		a := &answers[i]
		for _, n := range a.Counts {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
		dst = appendIDs(dst, a.Sources, width(nodes))
		dst = append(dst, answerEdges*one(len(a.EdgeIDs) > 0)|answerDegrees*one(len(a.Degrees) > 0)|answerWeights*one(len(a.Weights) > 0))
		for _, e := range a.EdgeIDs {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(e))
		}
		for _, n := range a.Degrees {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
		dst = appendFloats(dst, a.Weights)
	}
	return dst
}

// ReadAnswers reads what AppendAnswers wrote, to so many rows of each question, into the answers' memory. It is as safe as ReadAsks; what it
// reads may still be no answer to the questions.
func ReadAnswers(data []byte, answers []*sampling.Answer, rows []int, nodes int) error {
	p := &packed{b: data}
	for i, a := range answers {
		p.answer(a, rows[i], nodes)
	}
	if p.err == nil && len(p.b) > 0 {
		p.err = fmt.Errorf("%d bytes follow them", len(p.b))
	}
	if p.err != nil {
		return fmt.Errorf("%w: answers of rows: %w", ErrMessage, p.err)
	}
	return nil
}

func (p *packed) answer(a *sampling.Answer, rows, nodes int) {
	a.Counts, a.Sources, a.EdgeIDs, a.Degrees, a.Weights = a.Counts[:0], a.Sources[:0], a.EdgeIDs[:0], a.Degrees[:0], a.Weights[:0]
	entries := 0
	for range rows {
		n := p.count(0)
		if entries += n; entries > len(p.b) { // none takes less than a byte
			p.err = errShort
		}
		if p.err != nil {
			return
		}
		a.Counts = append(a.Counts, uint32(n))
	}
	w := width(nodes)
	if entries > len(p.b)/w {
		p.err = errShort
		return
	}
	a.Sources = append(a.Sources, make([]uint32, entries)...)
	p.ids(a.Sources, w)
	flags := byte(0)
	if has := p.take(1, 1); has != nil {
		flags = has[0]
	}
	if flags&answerEdges != 0 {
		raw := p.take(entries, 8)
		for e := range len(raw) / 8 {
			a.EdgeIDs = append(a.EdgeIDs, int64(binary.LittleEndian.Uint64(raw[8*e:])))
		}
	}
	if flags&answerDegrees != 0 {
		for range rows {
			if a.Degrees = append(a.Degrees, uint32(p.count(0))); p.err != nil {
				return
			}
		}
	}
	if flags&answerWeights != 0 && entries <= len(p.b)/4 {
		a.Weights = append(a.Weights, make([]float32, entries)...)
		p.floats(a.Weights)
	} else if flags&answerWeights != 0 {
		p.err = errShort
	}
}
