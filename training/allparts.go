package training

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/sampling"
)

// AllParts are all pieces of a partition set, open in this process. It implements Parts.
type AllParts struct {
	set    *pieces.Set
	common pieces.Common
	pieces []*store.Piece
}

// OpenParts opens the pieces of the partition set in dir.
func OpenParts(dir string) (d *AllParts, err error) {
	d = new(AllParts)
	if d.set, err = pieces.Open(dir); err != nil {
		return nil, err
	}
	for i := range d.set.Pieces() {
		p, err := d.set.OpenPiece(i)
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		d.pieces = append(d.pieces, p)
		here, err := pieces.CommonOf(p)
		if i == 0 {
			d.common = here
		}
		if err == nil && !reflect.DeepEqual(here, d.common) {
			err = fmt.Errorf("%w: piece %d has other labels, features or weights than piece 0; divide the graph again", graph.ErrFormat, i)
		}
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Close closes them.
func (d *AllParts) Close() (err error) {
	for _, p := range d.pieces {
		err = errors.Join(err, p.Close())
	}
	return err
}

// Set implements Parts.
func (d *AllParts) Set() *pieces.Set { return d.set }

// Common implements Parts.
func (d *AllParts) Common() pieces.Common { return d.common }

// Stores implements Parts.
func (d *AllParts) Stores() (all []*store.Store) {
	for _, p := range d.pieces {
		all = append(all, p.Store)
	}
	return all
}

// Rows implements Parts.
func (d *AllParts) Rows() features.Store {
	var all []features.Store
	for _, p := range d.pieces {
		all = append(all, features.InMemory(p.Dataset().NodeFeatures))
	}
	rows, err := features.Joined(d.set.Borders(), all)
	if err != nil {
		panic(err) // a piece has as many rows as the set says, and all have the same layout
	}
	return rows
}

// Owners implements Parts.
func (d *AllParts) Owners(ctx context.Context, spec sampling.Spec, seed uint64) (sampling.Owners, error) {
	rows := map[int]sampling.Rows{}
	for i, p := range d.pieces {
		r, err := sampling.PieceRows(d.set, i, p)
		if err != nil {
			return nil, err
		}
		rows[i] = r
	}
	drawers, err := sampling.NewDrawers(ctx, spec, seed, d.set.Borders(), rows)
	if err != nil {
		return nil, err
	}
	return drawers, drawers.GatherHere(ctx)
}

// Column implements Parts.
func (d *AllParts) Column(_ context.Context, what string) (all [][]byte, err error) {
	for _, p := range d.pieces {
		b, err := PieceColumn(p, what)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// What PieceColumn makes of a piece.
const (
	ColumnLabels  = "labels"   // int32: graph.Labels.Class; or bytes: Multi
	ColumnDegrees = "degrees"  // uint32, and the next two float32: compute.Facts
	ColumnInvSqrt = "inv-sqrt" //
	ColumnLoops   = "loops"    // empty: all 1
)

// PieceColumn returns what is known of each master of a piece, little-endian: what is "labels", "degrees", "inv-sqrt" or "loops".
func PieceColumn(p *store.Piece, what string) (b []byte, err error) {
	err = graph.Guard(func() error {
		switch l := p.Dataset().Labels; what {
		case ColumnLabels:
			switch {
			case l == nil:
			case l.IsMulti():
				b = slices.Clone(l.Multi)
			default:
				b, err = binary.Append(nil, binary.LittleEndian, l.Class)
			}
		case ColumnDegrees:
			b, err = binary.Append(nil, binary.LittleEndian, compute.FactsOf(p.In, false).Degrees)
		case ColumnInvSqrt:
			b, err = binary.Append(nil, binary.LittleEndian, compute.FactsOf(p.In, true).InvSqrt)
		case ColumnLoops:
			b, err = binary.Append(nil, binary.LittleEndian, compute.FactsOf(p.In, true).Loops)
		default:
			err = fmt.Errorf("training: there is no column %.64q", what)
		}
		return err
	})
	return b, err
}
