package compute

import (
	"slices"
	"unsafe"
)

// Arena hands out slices of one piece of memory and takes them all back at
// once. After the first few uses it neither allocates nor frees: Reset merges
// what was used into one piece. The zero value is ready for use. It is not for
// concurrent use.
type Arena[E any] struct {
	pieces [][]E
	piece  int // the piece that Alloc takes from
	used   int // elements of it that are taken
	total  int // elements handed out since Reset, skipped ends of pieces included
	asked  int // the same without what was left over at pieces' ends

	spare map[int][][]E // what was given back since Reset, by size

	marked bool  // since Reset
	handed [][]E // since Mark, each piece of memory once, but for what is kept

	fixed bool // what is taken between two Resets has always the same sizes: pieces stay as they are
	room  int  // of these sizes some are up to one part in so many larger the next time; 0: none is

	alloc func(n int) []E // a device's memory; nil: the host's
	free  func(s []E)
}

// arenaPiece is the least number of elements that are allocated at once.
const arenaPiece = 1 << 14

// arenaBeside is of how many parts of the first piece others may take one and stay beside it.
const arenaBeside = 16

// arenaAlign keeps slices of 4-byte elements on cache-line boundaries relative
// to their piece.
const arenaAlign = 16

// Alloc returns n elements of unspecified content, valid until Reset.
func (a *Arena[E]) Alloc(n int) []E {
	if same := a.spare[n]; len(same) > 0 {
		a.spare[n] = same[:len(same)-1]
		return same[len(same)-1]
	}
	need := (n + arenaAlign - 1) / arenaAlign * arenaAlign
	for a.piece < len(a.pieces) && a.used+need > len(a.pieces[a.piece]) {
		a.total += len(a.pieces[a.piece]) - a.used
		a.piece++
		a.used = 0
	}
	if a.piece == len(a.pieces) {
		size := need
		if a.room > 0 {
			size += need / a.room
		}
		a.pieces = append(a.pieces, a.make(max(size, arenaPiece)))
	}
	s := a.pieces[a.piece][a.used : a.used+n : a.used+n]
	a.used += need
	a.total += need
	a.asked += need
	if a.marked {
		a.handed = append(a.handed, s)
	}
	return s
}

// Free gives s, which Alloc returned, back for the next Alloc of as many elements.
func (a *Arena[E]) Free(s []E) {
	if a.spare == nil {
		a.spare = map[int][][]E{}
	}
	a.spare[len(s)] = append(a.spare[len(s)], s)
}

// Mark says that Recycle takes back what is handed out from here on, until Reset.
func (a *Arena[E]) Mark() { a.marked, a.handed = true, a.handed[:0] }

// Recycle takes back all that was handed out since Mark, for the next Allocs of as many elements, but for what Keep was told of.
func (a *Arena[E]) Recycle() {
	clear(a.spare)
	for _, s := range a.handed {
		a.Free(s)
	}
}

// Keep has s, which Alloc returned since Mark, stay until Reset, or Unkeep and the next Recycle.
func (a *Arena[E]) Keep(s []E) {
	a.handed = slices.DeleteFunc(a.handed, func(h []E) bool { return unsafe.SliceData(h) == unsafe.SliceData(s) })
}

// Unkeep has the next Recycle take s, of which Keep was told, back.
func (a *Arena[E]) Unkeep(s []E) { a.handed = append(a.handed, s) }

// Reserve has the first pieces be one of n elements, if there is none yet, so that it need not be found out what is used between two
// Resets: while that is, pieces lie in memory beside the one that replaces them.
func (a *Arena[E]) Reserve(n int) {
	if len(a.pieces) == 0 && n > 0 && a.alloc == nil {
		a.pieces = [][]E{a.make(n)}
	}
}

// Zeroed is Alloc with every element set to its zero value.
func (a *Arena[E]) Zeroed(n int) []E {
	s := a.Alloc(n)
	clear(s)
	return s
}

// Reset takes back everything that was handed out.
func (a *Arena[E]) Reset() {
	clear(a.spare)
	clear(a.handed)
	a.marked, a.handed = false, a.handed[:0]
	if len(a.pieces) > 1 && !a.fixed && a.Cap()-len(a.pieces[0]) > len(a.pieces[0])/arenaBeside {
		// An eighth more than was needed, so that batches of slightly
		// different sizes settle on one piece.
		total := a.total + a.total/8
		a.release()
		a.pieces = [][]E{a.make(total)}
	} else if a.room > 0 && len(a.pieces) > 1 && a.Cap() > 2*a.asked+arenaPiece*len(a.pieces) {
		a.release() // pieces that larger ones stand beside
	}
	a.piece, a.used, a.total, a.asked = 0, 0, 0, 0
}

func (a *Arena[E]) make(n int) []E {
	if a.alloc != nil {
		return a.alloc(n)
	}
	return make([]E, n)
}

// release gives all memory back.
func (a *Arena[E]) release() {
	if a.free != nil {
		for _, p := range a.pieces {
			a.free(p)
		}
	}
	a.pieces = nil
	clear(a.spare)
	a.piece, a.used, a.total, a.asked = 0, 0, 0, 0
}

// Cap returns the number of elements the arena holds on to.
func (a *Arena[E]) Cap() int {
	n := 0
	for _, p := range a.pieces {
		n += len(p)
	}
	return n
}
