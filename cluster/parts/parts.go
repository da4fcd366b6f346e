// Package parts shares the pieces of a partition set out among the nodes of a cluster.
//
// A node holds the pieces that package shard deals to it, as nodes come and go: it opens those alone, in
// its directory of the set, where it brings what it lacks from a node that has the files. What is asked
// of a piece that lies elsewhere goes to a node that holds it, and waits for one: feature rows (shard.Store),
// entries that a sampler draws (Owners, one request for each hop and node), and what is known of its masters (Column).
// Pieces never change, so that any node may be asked that has one open, and another one again.
package parts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/shard"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/training"
)

// Options of Hold.
type Options struct {
	Member   *membership.Member
	Plane    *dataplane.Plane
	Files    *dataplane.Directories
	Set      *pieces.Set
	Common   pieces.Common
	Replicas int  // nodes that hold each piece, as far as there are so many
	MinNodes int  // nodes that are waited for before pieces are dealt
	Trust    bool // pieces that lie here are what they were, and not read to compare them with their checksums
	// Copying hears of pieces that are copied to dir; nil: nobody does.
	Copying func(dir string, p dataplane.Progress, done bool)
	Logger  *slog.Logger
}

// Parts are the pieces of the run's partition set. It implements training.Parts.
//
// What computes over pieces uses Ready, to wait until each lies somewhere; Mine and Piece, for those that this
// node computes; and Node, for who computes the others: by the cluster's table of places each piece is at one node, which holds it.
type Parts struct {
	o         Options
	keeper    *shard.Keeper
	exchanges *Exchanges   // of rows between pieces that several nodes compute
	spreads   atomic.Int64 // the revision of the newest agreement that this node took part in: one that failed does not begin again
	ctx       context.Context
	cancel    context.CancelCauseFunc

	mu      sync.Mutex
	open    map[int]*store.Piece
	drawers *sampling.Drawers
	drawn   string // what drawers draw: spec and seed
	kept    []byte // Spread.Keep's
}

// ErrOver: the node is leaving.
var ErrOver = errors.New("parts: this node takes part no more")

// Hold makes this node hold its share of the pieces. The caller must Close.
func Hold(ctx context.Context, o Options) (_ *Parts, err error) {
	if o.Common.Features == nil {
		return nil, fmt.Errorf("parts: %s has no node features to compute on; add them to the data, and divide it again", o.Set.Name())
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Parts{o: o, open: map[int]*store.Piece{}, exchanges: ServeExchanges(o.Plane)}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	var has []int
	for i := range o.Set.Pieces() {
		piece, err := o.Set.OpenPiece(i)
		if err == nil {
			has = append(has, i)
			p.serve(i, piece)
			err = piece.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, graph.ErrFormat) {
			return nil, err
		}
	}
	o.Plane.Handle(dataplane.MethodDraw, p.Draw)
	o.Plane.Handle(dataplane.MethodColumn, p.column)
	p.keeper, err = shard.Keep(ctx, shard.Options{
		Member: o.Member, Plane: o.Plane, Map: shard.MapOf(o.Set.Borders()), Layout: *o.Common.Features, Replicas: o.Replicas, Bring: p.bring, Pieces: has, MinNodes: o.MinNodes, Logger: o.Logger,
	})
	return p, err
}

// serve lets others copy a piece.
func (p *Parts) serve(i int, piece *store.Piece) {
	p.o.Files.Add(pieces.PieceName(i), p.o.Set.PieceDir(i), piece.Files(store.Whole))
}

// bring makes a piece be here.
func (p *Parts) bring(ctx context.Context, i int, from []string) (*graph.Features, error) {
	p.mu.Lock()
	piece := p.open[i] // it was here before
	p.mu.Unlock()
	if piece == nil {
		var err error
		if piece, err = p.openPiece(ctx, i, from); piece == nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open[i] = piece
		if err := p.add(ctx, i); err != nil {
			return nil, err
		}
	}
	if piece.Masters == 0 {
		return p.o.Common.Features.NewTable(0), nil
	}
	return piece.Dataset().NodeFeatures, nil
}

// openPiece opens a piece, which it copies unless it is here and whole; nil: nobody has it.
func (p *Parts) openPiece(ctx context.Context, i int, from []string) (*store.Piece, error) {
	piece, err := p.o.Set.OpenPiece(i)
	if err == nil && !p.o.Trust {
		if err = piece.Verify(ctx); err != nil {
			err = errors.Join(err, piece.Close())
		}
	}
	switch {
	case err == nil:
		p.serve(i, piece)
		return piece, nil
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, graph.ErrFormat):
		return nil, err
	case len(from) == 0 && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case len(from) == 0:
		return nil, err
	}
	tell := p.o.Copying
	if tell == nil {
		tell = func(string, dataplane.Progress, bool) {}
	}
	var last dataplane.Progress
	dir := p.o.Set.PieceDir(i)
	err = dataplane.CopyDirectory(ctx, p.o.Plane, from, pieces.PieceName(i), dir, nil, func(at dataplane.Progress) {
		last = at
		tell(dir, at, false)
	})
	if err != nil {
		return nil, err
	}
	tell(dir, last, true)
	if piece, err = p.o.Set.OpenPiece(i); err != nil {
		return nil, err
	}
	if err := piece.Verify(ctx); err != nil {
		return nil, errors.Join(err, piece.Close())
	}
	p.serve(i, piece)
	return piece, nil
}

// add lets those who draw draw from a piece that is here, if they are ready. The lock is held.
func (p *Parts) add(ctx context.Context, i int) error {
	if p.drawers == nil {
		return nil
	}
	rows, err := sampling.PieceRows(p.o.Set, i, p.open[i])
	if err != nil {
		return err
	}
	return p.drawers.Add(ctx, i, rows)
}

// Keeper says which pieces lie where: a shard is a piece.
func (p *Parts) Keeper() *shard.Keeper { return p.keeper }

// Set implements training.Parts.
func (p *Parts) Set() *pieces.Set { return p.o.Set }

// Common implements training.Parts.
func (p *Parts) Common() pieces.Common { return p.o.Common }

// Rows implements training.Parts.
func (p *Parts) Rows() features.Store { return p.keeper.Store() }

// Piece returns a piece that is open here, until Close; nil: it is not.
func (p *Parts) Piece(i int) *store.Piece {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[i]
}

// Stores implements training.Parts.
func (p *Parts) Stores() (all []*store.Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range slices.Sorted(maps.Keys(p.open)) {
		all = append(all, p.open[i].Store)
	}
	return all
}

// Node returns where the table of places has a piece; "": nowhere yet, or its node is gone.
func (p *Parts) Node(i int) string {
	at, _ := p.o.Member.Place(shard.PartKind, fmt.Sprint(i))
	if v, _ := p.o.Member.View(); at.Node != "" {
		if _, in := v.Member(at.Node); !in {
			return ""
		}
	}
	return at.Node
}

// Mine returns the pieces that the table of places has at this node, in order.
func (p *Parts) Mine() (all []int) {
	for i := range p.o.Set.Pieces() {
		if p.Node(i) == p.o.Plane.Node() {
			all = append(all, i)
		}
	}
	return all
}

// Ready waits until every piece lies on a node, and those that belong here do. It says what it waits for.
func (p *Parts) Ready(ctx context.Context) error {
	if err := p.keeper.Ready(ctx); err != nil {
		return err
	}
	return p.keeper.Settled(ctx)
}

// Interrupt ends what waits for pieces, with ErrOver, from now on.
func (p *Parts) Interrupt() { p.cancel(ErrOver) }

// Close ends the holding, and the mappings: the plane must be closed, if Hold returned no error.
func (p *Parts) Close() (err error) {
	p.Interrupt()
	if p.keeper != nil {
		err = p.keeper.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, piece := range p.open {
		err = errors.Join(err, piece.Close())
	}
	p.open = nil
	return err
}

// within is ctx, which ends with Interrupt, too.
func (p *Parts) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// A column is asked for by its piece and name; this name stands for Common.
const common = "common"

// maxColumn is the most bytes of a piece's column.
const maxColumn = 1 << 30

type columnOf struct {
	Piece int    `json:"piece"`
	What  string `json:"what"`
	Drawn string `json:"drawn,omitempty"` // of the sampler that has to know it; empty: the model has
}

// column answers for a piece that lies here.
func (p *Parts) column(ctx context.Context, r *dataplane.Request) (dataplane.Reply, error) {
	var q columnOf
	if err := json.Unmarshal(r.Body, &q); err != nil {
		return dataplane.Reply{}, fmt.Errorf("parts: a question for a column: %w", err)
	}
	if q.What == common {
		b, err := json.Marshal(&p.o.Common)
		return dataplane.Reply{Data: [][]byte{b}}, err
	}
	b, err := p.columnHere(ctx, q)
	return dataplane.Reply{Data: [][]byte{b}}, err
}

// columnHere returns a column of a piece that lies here.
func (p *Parts) columnHere(ctx context.Context, q columnOf) ([]byte, error) {
	piece := p.Piece(q.Piece)
	if piece == nil {
		return nil, fmt.Errorf("parts: piece %d does not lie here", q.Piece)
	}
	if q.Drawn == "" {
		return training.PieceColumn(piece, q.What)
	}
	d, err := p.drawersOf(q.Drawn)
	if err != nil {
		return nil, err
	}
	return d.Column(ctx, q.Piece, q.What)
}

func askColumn(ctx context.Context, plane *dataplane.Plane, node string, q columnOf) ([]byte, error) {
	body, err := json.Marshal(&q)
	if err != nil {
		return nil, fmt.Errorf("parts: %w", err)
	}
	return plane.Ask(ctx, dataplane.Call{Node: node, Method: dataplane.MethodColumn, Body: [][]byte{body}, Max: maxColumn})
}

// AskCommon asks a node that holds parts what is alike of them.
func AskCommon(ctx context.Context, plane *dataplane.Plane, node string) (c pieces.Common, err error) {
	b, err := askColumn(ctx, plane, node, columnOf{What: common})
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return c, fmt.Errorf("parts: node %s does not say what the pieces are like: %w", node, err)
	}
	return c, nil
}

// Column implements training.Parts.
func (p *Parts) Column(ctx context.Context, what string) ([][]byte, error) {
	return p.columns(ctx, columnOf{What: what})
}

// columns asks for a column of each piece.
func (p *Parts) columns(ctx context.Context, q columnOf) ([][]byte, error) {
	ctx, end := p.within(ctx)
	defer end()
	all, every := make([][]byte, len(p.o.Set.Pieces())), make([]int, len(p.o.Set.Pieces()))
	for i := range every {
		every[i] = i
	}
	return all, p.keeper.Store().Reach(ctx, every, func(i int) func() error {
		if p.Piece(i) == nil {
			return nil
		}
		return func() (err error) {
			q := q
			q.Piece = i
			all[i], err = p.columnHere(ctx, q)
			return err
		}
	}, func(ctx context.Context, node string, some []int) (err error) {
		for _, i := range some {
			if all[i], err = askColumn(ctx, p.o.Plane, node, columnOf{i, q.What, q.Drawn}); err != nil {
				return err
			}
		}
		return nil
	})
}
