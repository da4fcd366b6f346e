package runtime

import (
	"context"
	"fmt"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/scheduler"
	"github.com/gnnactor/gnnactor/training"
)

// fits reports what of inference is more than the memory limit allows, with its values in memory or in files. So many other places
// compute pieces: what they are sent waits until they take it.
func (d *Divided) fits(inFiles bool, others int) error {
	m := d.model.PieceMemory(d.pieces)
	peak, kept, between := m.Peak, m.Kept, ""
	if others > 0 {
		// Of each other place there is a message on its way here, and where those wait in files two on their way there: that it was told of, and that it fetches.
		if peak += int64(others) * m.Message; inFiles {
			peak += 2 * int64(others) * m.Message
		} else {
			peak += m.Sent
		}
		peak += min(m.Received, int64(others)*training.SpreadRoom)
		between = ", with rows to and from other nodes,"
	}
	if inFiles {
		return scheduler.WithinOfPieces(d.cfg.limit, "what inference takes for the largest piece"+between+" (more pieces are smaller)", peak)
	}
	return scheduler.WithinOfPieces(d.cfg.limit, "what inference takes that keeps its values in memory"+between+" (--scratch DIR keeps them in files)", peak+kept)
}

// fitsBatches reports that so many batches in flight, of which each holds so many bytes, and shared ones with the others, and what is found of the next
// batch ahead of it, hold more than the memory limit allows.
func (d *Divided) fitsBatches(n int, bytes, shared, ahead int64) error {
	what, hold, fewer := "a batch", "holds", ""
	if n > 1 {
		what, hold, fewer = fmt.Sprintf("%d batches in flight", n), "hold", " (fewer trainers have fewer in flight, with the same result)"
	}
	if ahead > 0 {
		what, hold = what+" and the search for the next", "hold"
	}
	what = fmt.Sprintf("what %s %s of the pieces that are computed here%s", what, hold, fewer)
	return scheduler.WithinOfPieces(d.cfg.limit, what, shared+int64(n)*(bytes-shared)+ahead)
}

// foresee is fitsBatches before there is a batch, of as many of nodes as one has: what is certainly too much is refused before it is computed. Of edges that lie elsewhere
// than with their targets the sums are not counted.
func (d *Divided) foresee(ctx context.Context, exec func() *cpu.Exec, nodes []uint32, n int) error {
	if d.cfg.limit == (scheduler.Limit{}) {
		return nil
	}
	// What pieces hold is linear in their sizes: all of them together are as many mean ones.
	all, some, with := compute.PieceSizes{}, 0, 0
	for _, p := range d.set.Pieces() {
		if p.Masters > 0 {
			with++
		}
	}
	nonZero, err := d.nonZero()
	if err != nil {
		return err
	}
	for _, p := range d.pieces {
		if p.Masters == 0 {
			continue
		}
		some++
		all.Masters, all.Others, all.Entries = all.Masters+p.Masters, all.Others+len(p.Sources.IDs), all.Entries+len(p.In.Indices)
		if p.Partial != nil {
			all.Entries += len(p.Partial.Indices)
		}
		for _, ids := range p.Sources.Sends {
			all.Sent += len(ids)
		}
	}
	targets := len(nodes)
	if d.cfg.Sampling.Hybrid {
		targets = min(targets, d.cfg.Sampling.BatchSize)
	}
	size := compute.PieceSizes{
		Masters: all.Masters / some, Others: all.Others / some, Entries: all.Entries / some, Sent: all.Sent / some, Targets: min(targets/with, all.Masters/some),
		Mean: d.set.NumNodes() / with,
	}
	piece, err := d.model.PieceBytes(ctx, exec, nonZero, d.cfg.Training.Recompute, size)
	if err != nil {
		return err
	}
	if d.spill != "" {
		piece.Bytes, piece.Shared = piece.Bytes-piece.Spills, 0
	}
	const sure = 20 // the first batch tells what is nearer to the limit than one in so many
	bytes, shared := int64(some)*piece.Bytes, int64(some)*piece.Shared
	return d.fitsBatches(n, bytes-bytes/sure, shared-shared/sure, 0)
}

// nonZero returns which share of features is not zero, in some rows of the pieces here.
func (d *Divided) nonZero() (share float64, err error) {
	const rows = 64 // of a piece
	values, others := 0, 0
	err = graph.Guard(func() error {
		for _, p := range d.pieces {
			row := make([]float32, p.Features.Cols)
			for k := range min(p.Masters, rows) {
				p.Features.Row(row, k*(p.Masters/min(p.Masters, rows)))
				for _, x := range row {
					if values++; x != 0 {
						others++
					}
				}
			}
		}
		return nil
	})
	return float64(others) / float64(max(values, 1)), err
}
