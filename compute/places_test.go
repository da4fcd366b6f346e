package compute

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
)

// misheard is an Exchange in which piece 2 hears something else from piece 1 than was said.
type misheard struct{ *MemoryExchange }

func (m misheard) Receive(ctx context.Context, round string, from, to int, rows []float32) error {
	err := m.MemoryExchange.Receive(ctx, round, from, to, rows)
	if round == "r" && from == 1 && to == 2 {
		rows[0] = 1
	}
	return err
}

// All places find the same table of them, or none goes on.
func TestFindPlaces(t *testing.T) {
	borders := []uint32{0, 10, 20, 30, 30, 40, 40} // pieces 3 and 5 are empty
	found := func(ex Exchange) (tables []Places, errs []error) {
		var all [][]*Piece
		for _, indexes := range [][]int{{0, 1}, {2}, {3, 4}, {5}} {
			var own []*Piece
			for _, i := range indexes {
				own = append(own, &Piece{Index: i, First: borders[i], Masters: int(borders[i+1] - borders[i]), Borders: borders})
			}
			all = append(all, own)
		}
		tables, errs = make([]Places, len(all)), make([]error, len(all))
		var wg sync.WaitGroup
		for i, own := range all {
			wg.Go(func() { tables[i], errs[i] = FindPlaces(t.Context(), ex, "r", own) })
		}
		wg.Wait()
		return tables, errs
	}
	tables, errs := found(NewMemoryExchange())
	for i, table := range tables {
		switch want := (Places{0, 0, 2, -1, 4, -1}); {
		case i == 3: // without masters
		case errs[i] != nil || !slices.Equal(table, want):
			t.Errorf("place %d finds %v, not %v: %v", i, table, want, errs[i])
		}
	}
	_, errs = found(misheard{NewMemoryExchange()})
	for i, err := range errs {
		if i != 3 && (err == nil || !strings.Contains(err.Error(), "computed in the same places")) {
			t.Errorf("place %d goes on with a table that differs from others': %v", i, err)
		}
	}
}

func TestOtherPlaces(t *testing.T) {
	for _, c := range []struct {
		table Places
		want  int
	}{{nil, 0}, {Places{0}, 0}, {Places{0, 0, -1, 0}, 0}, {Places{-1, 1, 1}, 0}, {Places{0, 1}, 1}, {Places{-1, 1, 2}, 1}, {Places{0, 0, 2, 3}, 2}} {
		if got := c.table.Others(); got != c.want {
			t.Errorf("%d other places in %v, want %d", got, c.table, c.want)
		}
	}
}
