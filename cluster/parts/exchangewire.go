package parts

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// key names a message: in a round a piece sends to another once at most.
type key struct {
	round    string
	from, to int
}

const (
	maxName  = 255
	maxRound = 255
	headSize = 1 + 2 + 2 + 4 + 1 // beside the round
	maxHead  = 4 + maxParcels*(headSize+maxRound)
)

// request is what a node asks another: to hear of what is sent, or to take what it heard of.
type request struct {
	name string
	take bool
	key  key // to take
	room int // bytes of rows that an answer may bring, otherwise
}

func appendText(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

func cutText(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, false
	}
	return string(b[1 : 1+b[0]]), b[1+b[0]:], true
}

func (k key) append(b []byte) []byte {
	b = appendText(b, k.round)
	b = binary.LittleEndian.AppendUint16(b, uint16(k.from))
	return binary.LittleEndian.AppendUint16(b, uint16(k.to))
}

func cutKey(b []byte) (k key, rest []byte, ok bool) {
	if k.round, b, ok = cutText(b); !ok || len(b) < 4 {
		return k, nil, false
	}
	k.from, k.to = int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))
	return k, b[4:], true
}

func (r *request) append(b []byte) []byte {
	b = appendText(b, r.name)
	if r.take {
		return r.key.append(append(b, 1))
	}
	return binary.LittleEndian.AppendUint64(append(b, 0), uint64(r.room))
}

func parseRequest(b []byte) (r request, err error) {
	bad := fmt.Errorf("parts: a request of %d bytes is none", len(b))
	name, rest, ok := cutText(b)
	if !ok || len(rest) == 0 || rest[0] > 1 {
		return r, bad
	}
	r.name, r.take = name, rest[0] == 1
	rest = rest[1:]
	if r.take {
		if r.key, rest, ok = cutKey(rest); !ok || len(rest) > 0 {
			return r, bad
		}
		return r, nil
	}
	if len(rest) != 8 {
		return r, bad
	}
	room := binary.LittleEndian.Uint64(rest)
	if room > 1<<40 {
		return r, bad
	}
	r.room = int(room)
	return r, nil
}

// head says of a message that it is there.
type head struct {
	key
	size int  // values
	left bool // they are not in this answer
}

func appendHeads(b []byte, heads []head) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(heads)))
	for i := range heads {
		h := &heads[i]
		b = binary.LittleEndian.AppendUint32(h.key.append(b), uint32(h.size))
		if h.left {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

var errAnswer = errors.New("parts: what it answers is no list of messages with their rows")

// parseAnswer returns the messages that an answer tells of, and behind them the rows that it brings: 4 bytes
// for each value of those that are not left.
func parseAnswer(b []byte) (heads []head, rows []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errAnswer
	}
	n := binary.LittleEndian.Uint32(b)
	if b = b[4:]; n > maxParcels {
		return nil, nil, errAnswer
	}
	bytes := uint64(0)
	for range n {
		var h head
		var ok bool
		if h.key, b, ok = cutKey(b); !ok || len(b) < 5 || b[4] > 1 {
			return nil, nil, errAnswer
		}
		h.size, h.left = int(binary.LittleEndian.Uint32(b)), b[4] == 1
		if b = b[5:]; !h.left {
			bytes += 4 * uint64(h.size)
		}
		heads = append(heads, h)
	}
	if bytes != uint64(len(b)) {
		return nil, nil, errAnswer
	}
	return heads, b, nil
}
