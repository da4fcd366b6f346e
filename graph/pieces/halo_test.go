package pieces

import (
	"path/filepath"
	"slices"
	"testing"
)

// What a piece sends to another is what that one reads of it, and between them they name every pair of
// a master and a piece that it has an edge to, once.
func TestHalo(t *testing.T) {
	t.Parallel()
	for i, method := range Methods() {
		ds := random(7000, 30000, uint64(i), false)
		src := create(t, ds)
		dir := filepath.Join(t.TempDir(), "set")
		s, err := Create(t.Context(), dir, src, Options{Method: method, Pieces: 1 + i%4, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		in, _, original := whole(t, s, ds)
		table := s.Borders().Table()
		want := map[[2]uint32]bool{} // a master by the graph's id, and a piece
		id := make([]uint32, len(original))
		for v, o := range original {
			id[o] = uint32(v)
		}
		for v, row := range in {
			for _, e := range row {
				if q := table[id[v]/Border]; table[id[e.source]/Border] != q {
					want[[2]uint32{e.source, uint32(q)}] = true
				}
			}
		}
		sum, err := s.Summary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sends, reads := map[[2]uint32]bool{}, map[[2]uint32]bool{}
		for i := range s.Pieces() {
			p, err := s.OpenPiece(i)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			h, err := s.Halo(p)
			if err != nil {
				t.Fatal(err)
			}
			for q := range s.Pieces() {
				if got, want := sum.Reads[i][q], int64(h.Reads[q+1]-h.Reads[q]); got != want {
					t.Errorf("%s: in the summary piece %d reads %d masters of piece %d, want %d", method, i, got, q, want)
				}
				if !slices.IsSorted(h.Sends[q]) {
					t.Fatalf("%s: piece %d sends to %d out of order", method, i, q)
				}
				for _, u := range h.Sends[q] {
					sends[[2]uint32{original[uint32(p.Of.First)+u], uint32(q)}] = true
				}
				for _, u := range p.Sources[h.Reads[q]:h.Reads[q+1]] {
					if int(table[u/Border]) != q {
						t.Fatalf("%s: piece %d reads node %d of piece %d, which is not its master", method, i, u, q)
					}
					reads[[2]uint32{original[u], uint32(i)}] = true
				}
			}
			if h.Reads[len(s.Pieces())] != len(p.Sources) {
				t.Fatalf("%s: piece %d reads %d of %d nodes", method, i, h.Reads[len(s.Pieces())], len(p.Sources))
			}
		}
		for _, got := range []map[[2]uint32]bool{sends, reads} {
			if len(got) != len(want) {
				t.Fatalf("%s: %d pairs, want %d", method, len(got), len(want))
			}
			for pair := range want {
				if !got[pair] {
					t.Fatalf("%s: pair %v is missing", method, pair)
				}
			}
		}
	}
}

// Where sums are in several pieces there is no halo.
func TestHaloElsewhere(t *testing.T) {
	t.Parallel()
	src := create(t, random(3000, 9000, 1, false))
	for _, edges := range []string{EdgesAtSource, EdgesOnGrid} {
		s, err := Create(t.Context(), filepath.Join(t.TempDir(), "set"), src, Options{Method: "hash", Edges: edges, Pieces: 2})
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.OpenPiece(0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := s.Halo(p); err == nil {
			t.Errorf("edges at %s: a halo", edges)
		}
	}
}
