package trainers

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/internal/msgpackcheck"
	"github.com/gnnactor/gnnactor/sampling"
)

// question asks a node to sample a micro-batch, after others did. Votes are what
// those found, no two the same; the first one's is the asker's own.
type question struct {
	Run   uint64 `msgpack:"r"`
	Epoch int    `msgpack:"e"`
	Batch int    `msgpack:"b"`
	Micro int    `msgpack:"m"`
	Of    int    `msgpack:"o"`
	Votes []Vote `msgpack:"v"`
}

// Vote is what a node found a micro-batch to be.
type Vote struct {
	Node   string          `msgpack:"n"`
	Digest sampling.Digest `msgpack:"d"`
}

const (
	maxQuestion = 1 << 16
	maxNumber   = 1 << 40 // of epochs and batches
)

func (q *question) id() sampling.ID {
	return sampling.ID{Phase: phase, Epoch: q.Epoch, Batch: q.Batch, Micro: q.Micro, Of: q.Of}
}

func (q *question) encode() ([]byte, error) {
	b, err := msgpack.Marshal(q)
	if err == nil && len(b) > maxQuestion {
		err = fmt.Errorf("a question of %d bytes; at most %d", len(b), maxQuestion)
	}
	if err != nil {
		return nil, fmt.Errorf("trainers: %w", err)
	}
	return b, nil
}

func parseQuestion(b []byte) (*question, error) {
	if len(b) > maxQuestion {
		return nil, fmt.Errorf("trainers: a question of %d bytes; at most %d", len(b), maxQuestion)
	}
	q := new(question)
	if err := msgpackcheck.Unmarshal(b, q); err != nil {
		return nil, fmt.Errorf("trainers: %w", err)
	}
	if q.Epoch < 0 || q.Epoch > maxNumber || q.Batch < 0 || q.Batch > maxNumber || q.Of < 0 || q.Of > maxNumber || q.Micro < 0 || q.Micro >= max(q.Of, 1) {
		return nil, fmt.Errorf("trainers: a question about micro-batch %d of %d, epoch %d, batch %d", q.Micro, q.Of, q.Epoch, q.Batch)
	}
	if len(q.Votes) == 0 {
		return nil, errors.New("trainers: a question without what the asker found")
	}
	return q, nil
}

// An answer is the digest, and whether it settled the question.
const answerSize = 9

func encodeAnswer(d sampling.Digest, decided bool) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, answerSize), uint64(d))
	if decided {
		return append(b, 1)
	}
	return append(b, 0)
}

func parseAnswer(b []byte) (d sampling.Digest, decided bool, err error) {
	if len(b) != answerSize || b[8] > 1 {
		return 0, false, fmt.Errorf("trainers: an answer of %d bytes", len(b))
	}
	return sampling.Digest(binary.LittleEndian.Uint64(b)), b[8] == 1, nil
}
