package training

import (
	"context"
	"errors"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/sampling"
)

// Parts are the pieces of a run's partition set, some of which this process has open; others may lie on other
// nodes. What is asked of a piece that is away waits for it, as long as its context lets it.
type Parts interface {
	Set() *pieces.Set
	// Common is what is alike of all pieces.
	Common() pieces.Common
	// Stores are the files of the pieces that lie here now.
	Stores() []*store.Store
	// Rows reads feature rows, wherever they lie. Its owner closes it.
	Rows() features.Store
	// Owners readies the pieces here to draw by the sampler of spec, for all, and returns who draws.
	Owners(ctx context.Context, spec sampling.Spec, seed uint64) (sampling.Owners, error)
	// Column returns what PieceColumn makes of each piece.
	Column(ctx context.Context, what string) ([][]byte, error)
}

// ErrMoves is wrapped by what ends training between two steps, for all nodes alike, where pieces are computed by other nodes from there on.
var ErrMoves = errors.New("training: pieces move to other nodes")

// SpreadRoom is how many bytes of rows another node brings at most before the pieces here receive them.
const SpreadRoom = 64 << 20

// Spread says which pieces of a partition set this process computes, where the others are computed elsewhere, and carries
// rows between them. It is the same everywhere as long as it lasts.
type Spread interface {
	// Mine are the pieces that are computed here, ascending.
	Mine() []int
	// Piece is one of them; its owner closes it.
	Piece(i int) *store.Piece
	// Better reports whether pieces are to be computed by other nodes, which have them: more evenly, or as one that computes some is on its way
	// out. Who trains asks between two steps.
	Better() bool
	// Keep takes what training goes on from when pieces have moved, where no checkpoint has it; Kept is what it took last, of an earlier Spread,
	// too; nil: nothing.
	Keep(state []byte)
	Kept() []byte
	compute.Exchange
	// Offer is Send, to a piece that is computed elsewhere, of as many values as size says, which take writes when they are taken: once.
	Offer(ctx context.Context, round string, from, to, size int, take func(rows []float32) error) error
}
