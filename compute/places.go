package compute

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Places says of each piece which is the first with masters of those that are computed in the same place; of one without masters
// it is -1. All places have the same.
type Places []int

// FindPlaces has all places tell each other which pieces they compute; pieces are those of this one. A place without
// masters has no part in it. That they heard different things is an error of each: they would wait for each other.
func FindPlaces(ctx context.Context, ex Exchange, round string, pieces []*Piece) (Places, error) {
	first := -1
	for _, p := range pieces {
		if p.Masters > 0 && first < 0 {
			first = p.Index
		}
	}
	said, err := share(ctx, ex, round, pieces, func(*Piece) []float32 { return []float32{float32(first)} })
	if err != nil {
		return nil, err
	}
	heard := make([]float32, len(said))
	places := make(Places, len(said))
	for q, w := range said {
		heard[q], places[q] = -1, -1
		if w == nil {
			continue
		}
		if heard[q] = w[0]; !(w[0] >= 0 && w[0] <= float32(q)) {
			return nil, fmt.Errorf("piece %d says that piece %v is the first that is computed where it is", q, w[0])
		}
		places[q] = int(w[0])
	}
	all, err := share(ctx, ex, round+"-heard", pieces, func(*Piece) []float32 { return heard })
	if err != nil {
		return nil, err
	}
	for q, w := range all {
		if w != nil && !slices.Equal(w, heard) {
			return nil, fmt.Errorf("pieces are computed in the same places as %v, as is heard here, and %v, as piece %d heard", heard, w, q)
		}
	}
	return places, nil
}

// Others returns how many places there are beside this one.
func (pl Places) Others() int {
	places := 0
	for q, first := range pl {
		if first == q {
			places++
		}
	}
	return max(places-1, 0)
}

// tell sends what a piece says to every other place, once.
func (pl Places) tell(ctx context.Context, ex Exchange, round string, from int, words []float32) error {
	for q, first := range pl {
		if first == q && q != pl[from] {
			if err := ex.Send(ctx, round, from, q, words); err != nil {
				return err
			}
		}
	}
	return nil
}

// Share has all places know what each piece with masters says, at place here: say says it for those that are computed there, size how much
// the others do. Of a piece without masters there is nothing.
func (pl Places) Share(ctx context.Context, ex Exchange, round string, here int, say func(piece int) ([]float32, error), size func(piece int) int) (said [][]float32, err error) {
	said = make([][]float32, len(pl))
	for q, first := range pl {
		if first != here || here < 0 {
			continue
		}
		if said[q], err = say(q); err != nil {
			return nil, err
		}
		if err := pl.tell(ctx, ex, round, q, said[q]); err != nil {
			return nil, err
		}
	}
	for q, first := range pl {
		if first == here || first < 0 {
			continue
		}
		said[q] = make([]float32, size(q))
		if err := ex.Receive(ctx, round, q, here, said[q]); err != nil {
			return nil, err
		}
	}
	return said, nil
}

// sumTree is SumTree of the vectors of all pieces with masters, of which parts has those of place here, in their order: the sum, which
// may be one of them, is known to all places.
func (pl Places) sumTree(ctx context.Context, ex Exchange, round string, here int, parts [][]float32) (sum []float32, err error) {
	var pieces []int
	var all [][]float32 // of the pieces here
	size := 0
	for q, first := range pl {
		if first < 0 {
			continue
		}
		var part []float32
		if first == here {
			part, parts = parts[0], parts[1:]
			size = len(part)
		}
		pieces, all = append(pieces, q), append(all, part)
	}
	for stride := 1; stride < len(all); stride *= 2 {
		round := fmt.Sprintf("%s-%d", round, stride)
		for i := 0; i+stride < len(all); i += 2 * stride {
			into, from := pieces[i], pieces[i+stride]
			switch {
			case pl[from] == here && pl[into] == here:
				SumTree([][]float32{all[i], all[i+stride]})
			case pl[from] == here:
				err = ex.Send(ctx, round, from, into, all[i+stride])
			case pl[into] == here:
				other := make([]float32, size)
				if err = ex.Receive(ctx, round, from, into, other); err == nil {
					SumTree([][]float32{all[i], other})
				}
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if pl.Others() == 0 {
		return all[0], nil
	}
	if first := pieces[0]; first == here { // who has the sum may write to it while others still read
		return all[0], pl.tell(ctx, ex, round, first, append([]float32{}, all[0]...))
	}
	sum = make([]float32, size)
	return sum, ex.Receive(ctx, round, pieces[0], here, sum)
}

// exactly returns numbers as words that Share may carry: the bits of each in two.
func exactly(numbers ...float64) (words []float32) {
	for _, x := range numbers {
		b := math.Float64bits(x)
		words = append(words, math.Float32frombits(uint32(b)), math.Float32frombits(uint32(b>>32)))
	}
	return words
}

// number is the reverse of exactly, of the i-th.
func number(words []float32, i int) float64 {
	return math.Float64frombits(uint64(math.Float32bits(words[2*i])) | uint64(math.Float32bits(words[2*i+1]))<<32)
}
