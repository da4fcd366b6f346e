package actors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/messages"
)

// ErrReduce is wrapped by the failure of a step whose Reducer failed.
var ErrReduce = errors.New("actors: the step could not be shared")

// Reducer lets several processes train one model: each computes the micro-batches
// that are its own (Work.Mine), and all make every step, with the same bits.
type Reducer interface {
	// AllReduce puts the sum of a step's gradients into dst, added in the tree of
	// compute.SumTree over the micro-batches. parts holds this process's
	// gradients, by micro-batch, nil for the others; they are overwritten. meta
	// holds some bytes for each of them, which all processes get to know: the
	// result, by micro-batch. An error ends the pipeline; parts and dst are not
	// used again then.
	AllReduce(ctx context.Context, step int64, dst []float32, parts [][]float32, meta [][]byte) ([][]byte, error)
	// Gather gives mine to the other processes, and returns what each of them, this one included, gave under
	// that number: numbers rise. It is called beside AllReduce. An error ends the pipeline.
	Gather(ctx context.Context, number int64, mine []byte) ([][]byte, error)
}

// applyShared is apply for one of several processes.
func (p *parameters) applyShared() (any, error) {
	parts, meta := make([][]float32, len(p.got)), make([][]byte, len(p.got))
	observer, observes := p.updater.(Observer)
	for m, g := range p.got {
		if g == nil {
			continue
		}
		parts[m], meta[m] = g.Data, appendStats(nil, g.Stats)
		if observes { // the sum of what batch norms saw means nothing: all get to know each
			meta[m] = observer.TakeStatistics(meta[m], g.Data)
		}
	}
	if p.total == nil {
		p.total = make([]float32, len(p.updater.Params()))
	}
	metas, err := p.reducer.AllReduce(p.context, p.step, p.total, parts, meta)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReduce, err)
	}
	var stats messages.Stats
	for m, b := range metas { // in the order of the micro-batches
		s, rest, err := parseStats(b)
		if err == nil && observes {
			err = observer.ObserveStatistics(rest)
		}
		if err != nil {
			return nil, fmt.Errorf("actors: micro-batch %d of step %d: %w", m, p.step, err)
		}
		stats.Add(s)
	}
	p.updater.Apply([][]float32{p.total}, stats.Weight)
	return stats, nil
}

// appendStats appends 32 bytes.
func appendStats(b []byte, s messages.Stats) []byte {
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Loss))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Weight))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Correct))
	return binary.LittleEndian.AppendUint64(b, uint64(s.Count))
}

// parseStats also returns what follows.
func parseStats(b []byte) (s messages.Stats, rest []byte, err error) {
	if len(b) < 32 {
		return s, nil, fmt.Errorf("statistics of %d bytes; there are 32 at least", len(b))
	}
	u := binary.LittleEndian.Uint64
	s.Loss, s.Weight = math.Float64frombits(u(b)), math.Float64frombits(u(b[8:]))
	s.Correct, s.Count = int(u(b[16:])), int(u(b[24:]))
	return s, b[32:], nil
}
