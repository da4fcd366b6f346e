package features

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// numbered is a table of n rows from first on, each with its number in both columns.
func numbered(first, n int) *graph.Features {
	x := make([]float32, 2*n)
	for i := range n {
		x[2*i], x[2*i+1] = float32(first+i), -float32(first+i)
	}
	return graph.NewFeatures(n, 2, x)
}

// Rows come from the store that has them, empty ones among the stores included, to their slots.
func TestJoined(t *testing.T) {
	borders := []uint32{0, 0, 3, 3, 3, 10, 10}
	var stores []Store
	for i := range len(borders) - 1 {
		stores = append(stores, InMemory(numbered(int(borders[i]), int(borders[i+1]-borders[i]))))
	}
	s, err := Joined(borders, stores)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := s.Layout()
	if l.Rows != 10 {
		t.Fatalf("%d rows, want 10", l.Rows)
	}
	ids := []uint32{9, 0, 3, 2, 4, 1, 5, 8, 6, 7}
	for _, slots := range [][]uint32{nil, {0, 2, 4, 6, 8, 9, 7, 5, 3, 1}} {
		dst := l.NewTable(10)
		if err := Read(t.Context(), s, Request{IDs: ids, Slots: slots, Dst: dst}); err != nil {
			t.Fatal(err)
		}
		row := make([]float32, 2)
		for i, id := range ids {
			at := i
			if slots != nil {
				at = int(slots[i])
			}
			if dst.Row(row, at); row[0] != float32(id) || row[1] != -float32(id) {
				t.Errorf("row %d is %v, want that of %d", at, row, id)
			}
		}
	}
	dst := l.NewTable(1)
	if err := Read(t.Context(), s, Request{IDs: []uint32{10}, Dst: dst}); err == nil || !strings.Contains(err.Error(), "row 10 is out of range [0, 10)") {
		t.Errorf("a row that there is not: %v", err)
	}
	if err := Read(t.Context(), s, Request{Dst: dst}); err != nil {
		t.Errorf("no rows: %v", err)
	}
	if _, err := Joined([]uint32{0, 3}, []Store{InMemory(numbered(0, 2))}); err == nil || !strings.Contains(err.Error(), "2 rows of 2 float32, where 3") {
		t.Errorf("a store of other rows: %v", err)
	}
}

// A store that fails fails the read, when no store writes any more.
func TestJoinedFails(t *testing.T) {
	table := numbered(3, 3)
	s, err := Joined([]uint32{0, 3, 6}, []Store{InMemory(numbered(0, 3)), failing{InMemory(table)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := s.Layout()
	if err := Read(t.Context(), s, Request{IDs: []uint32{0, 5}, Dst: l.NewTable(2)}); !errors.Is(err, errFails) {
		t.Errorf("error %v, want %v", err, errFails)
	}
}

var errFails = errors.New("it fails")

// failing is a store whose reads fail.
type failing struct{ Store }

func (failing) Read(_ context.Context, _ Request, done func(error)) { go done(errFails) }
