package features

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// joined is a store of rows that other stores have, one after another.
type joined struct {
	reads
	layout  Layout
	borders []uint32
	stores  []Store
}

// Joined returns a store of the rows of stores, one after another: store i has those from
// borders[i] to borders[i+1], and a layout like the others'. A read is one of each store that has
// rows of it, all under way at once. Close closes the stores.
func Joined(borders []uint32, stores []Store) (Store, error) {
	s := &joined{layout: stores[0].Layout(), borders: borders, stores: stores}
	for i, of := range stores {
		l := of.Layout()
		if l.Rows != int(borders[i+1]-borders[i]) || l.Cols != s.layout.Cols || l.DType != s.layout.DType || l.RowScaled != s.layout.RowScaled || !slices.Equal(l.ColScale, s.layout.ColScale) {
			return nil, fmt.Errorf("features: store %d has %d rows of %s, where %d of %s are to be", i, l.Rows, &l, borders[i+1]-borders[i], &s.layout)
		}
	}
	s.layout.Rows = int(borders[len(stores)])
	return s, nil
}

func (s *joined) Layout() Layout { return s.layout }

func (s *joined) Read(ctx context.Context, r Request, done func(error)) {
	s.start(func() error {
		if err := r.check(&s.layout); err != nil {
			return err
		}
		parts := make([]Request, len(s.stores))
		for i, id := range r.IDs {
			p, found := slices.BinarySearch(s.borders, id)
			if !found {
				p--
			}
			for s.borders[p+1] == id { // of those with the same first id all but the last are empty
				p++
			}
			of := &parts[p]
			of.IDs, of.Slots = append(of.IDs, id-s.borders[p]), append(of.Slots, uint32(r.slot(i)))
		}
		asked, answers := 0, make(chan error, len(parts))
		for p := range parts {
			if parts[p].Dst = r.Dst; len(parts[p].IDs) > 0 {
				asked++
				s.stores[p].Read(ctx, parts[p], func(err error) { answers <- err })
			}
		}
		var first error
		for range asked {
			if err := <-answers; first == nil {
				first = err
			}
		}
		return first
	}, done)
}

func (s *joined) Close() error {
	s.wg.Wait()
	var err error
	for _, of := range s.stores {
		err = errors.Join(err, of.Close())
	}
	return err
}
