package runtime

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	stdruntime "runtime"
	"slices"
	"strconv"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/training"
)

// Divided is a partition set (package pieces) with a model, which computes piece by piece what a Runtime
// computes of a whole graph: the same bits, of the graph with the set's ids, where edges lie with their targets; elsewhere the
// same in float32's error, and bits that are a function of the partition. Outside nodes have the ids that
// they had before they were divided. One goroutine may use it at a time.
//
// With Config.Cluster.Spread it computes the pieces that are computed here, and all that compute the set call the same, with the same settings and
// parameters: Train, Infer and Evaluate are then of the whole, and what is said of single nodes is of those here.
type Divided struct {
	cfg     settings
	log     *slog.Logger
	set     *pieces.Set
	kernels cpu.Set
	opened  []*store.Piece // nil: it is computed elsewhere
	pieces  []*compute.Piece
	rounds  int // that began
	model   *compute.Model
	params  []float32
	start   string // hash of the parameters that training began with
	resumed int    // epochs
	steps   int    // of an epoch
	spill   string // directory
	pool    *pool.Pool
}

// OpenDivided opens the partition set config.Data.Path and the parameters of config.Model. What a Runtime can and this cannot is
// refused by name.
func OpenDivided(ctx context.Context, config Config) (_ *Divided, err error) {
	cfg, err := config.compile()
	if err != nil {
		return nil, err
	}
	for what, asked := range map[string]bool{
		"task link: a divided graph holds no links back":              cfg.task() == "link",
		"edge-features: a divided graph has none":                     cfg.Model.EdgeFeatures,
		"device: the pieces of a graph are computed by the processor": cfg.Execution.Device != "cpu" && cfg.Execution.Device != "" && cfg.Execution.Device != "auto",
		"stages of the program's own":                                 len(cfg.rowStages()) > 0,
	} {
		if asked {
			return nil, fmt.Errorf("%w: over a partition set there is no %s", ErrConfig, what)
		}
	}
	d := &Divided{cfg: *cfg, log: cfg.Logger}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = damaged(errors.Join(err, d.Close()))
		}
	}()
	if d.kernels, err = cpu.Detect(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := cfg.checkPrecision(d.kernels); err != nil {
		return nil, err
	}
	if cfg.Model.Params != "" && cfg.Model.Saved == nil {
		if cfg.Model.Saved, err = cfg.Model.Open(ctx); err != nil {
			return nil, err
		}
	}
	if d.set, err = pieces.Open(cfg.Data.Path); err != nil {
		return nil, err
	}
	if err := d.openPieces(ctx); err != nil {
		return nil, err
	}
	whole := *d.first()
	whole.Graph = graph.Elsewhere(d.set.NumNodes(), d.edges())
	if whole.NodeFeatures == nil || cfg.outputs(&whole) == 0 {
		return nil, fmt.Errorf("%w: %s has no node features, or no labels; add them to the data, or name a saved model (params) to predict by", ErrNoModel, d.set.Name())
	}
	d.cfg.multi = cfg.multiLabel(&whole)
	if n := cfg.outputs(&whole); d.cfg.multi && whole.Labels != nil && whole.Labels.NumClasses < n {
		return nil, fmt.Errorf("%w: %s has %d labels, and the model %d; of a partition set they have to be as many", ErrConfig, d.set.Name(), whole.Labels.NumClasses, n)
	}
	if d.model, err = compute.NewModel(cfg.modelSpec(&whole), whole.Graph); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	d.params = d.model.Init(cfg.Training.Seed)
	if saved := cfg.Model.Saved; saved != nil {
		if d.params, err = saved.parameters(d.model, &d.cfg.Config, d.log); err != nil {
			return nil, err
		}
	}
	threads := cfg.Execution.Threads
	if threads == 0 {
		threads = stdruntime.GOMAXPROCS(0)
	}
	d.pool = pool.New(threads)
	return d, nil
}

func (d *Divided) edges() (n int64) {
	for _, p := range d.set.Pieces() {
		n += p.Edges
	}
	return n
}

// first is what a piece here has.
func (d *Divided) first() *graph.Dataset { return d.opened[d.pieces[0].Index].Dataset() }

// openPieces maps the pieces that are computed here, and finds what they exchange.
func (d *Divided) openPieces(ctx context.Context) error {
	d.opened = make([]*store.Piece, len(d.set.Pieces()))
	for i := range d.opened {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var p *store.Piece
		var err error
		if spread := d.cfg.Cluster.Spread; spread == nil {
			p, err = d.set.OpenPiece(i)
		} else if slices.Contains(spread.Mine(), i) {
			p = spread.Piece(i)
		}
		if err != nil {
			return err
		}
		if d.opened[i] = p; p == nil {
			continue
		}
		halo, err := d.set.Halo(p)
		if err != nil {
			return err
		}
		features := p.Dataset().NodeFeatures
		if d.cfg.Data.NormalizeFeatures && features != nil {
			if features, err = features.Normalized(ctx); err != nil {
				return err
			}
		}
		d.pieces = append(d.pieces, &compute.Piece{
			Index: i, First: uint32(p.Of.First), Masters: p.Masters, Borders: d.set.Borders(), In: halo.In, Partial: halo.Partial, Features: features,
			Sources: compute.Mirrors{IDs: p.Sources, Reads: halo.Reads, Sends: halo.Sends},
		})
		if halo.Partial != nil {
			d.pieces[len(d.pieces)-1].Targets = compute.Mirrors{IDs: p.Targets, Reads: halo.Sums}
		}
	}
	if !slices.ContainsFunc(d.pieces, func(p *compute.Piece) bool { return p.Masters > 0 }) {
		return fmt.Errorf("%w: %s has no piece with nodes for this node to compute; divide the graph into more", ErrConfig, d.set.Name())
	}
	return nil
}

// exchange returns what carries rows between the pieces: alone where all are here. Of each thing that is computed, rounds have names of their own.
func (d *Divided) exchange(alone compute.Exchange) compute.Exchange {
	if d.rounds++; d.cfg.Cluster.Spread == nil {
		return alone
	}
	return roundsOf{d.cfg.Cluster.Spread, fmt.Sprintf("%d-", d.rounds)}
}

// roundsOf is an Exchange whose rounds have longer names.
type roundsOf struct {
	training.Spread
	prefix string
}

func (n roundsOf) Send(ctx context.Context, round string, from, to int, rows []float32) error {
	return n.Spread.Send(ctx, n.prefix+round, from, to, rows)
}

func (n roundsOf) Offer(ctx context.Context, round string, from, to, size int, take func(rows []float32) error) error {
	return n.Spread.Offer(ctx, n.prefix+round, from, to, size, take)
}

func (n roundsOf) Receive(ctx context.Context, round string, from, to int, rows []float32) error {
	return n.Spread.Receive(ctx, n.prefix+round, from, to, rows)
}

// Spreads reports whether pieces are computed elsewhere, too.
func (d *Divided) Spreads() bool { return d.cfg.Cluster.Spread != nil }

// alike checks that all that compute pieces have the same parameters and settings.
func (d *Divided) alike(ctx context.Context, ex compute.Exchange) (places compute.Places, here int, err error) {
	if places, err = compute.FindPlaces(ctx, ex, "alike", d.pieces); err != nil {
		return nil, 0, err
	}
	for _, p := range d.pieces {
		if p.Masters > 0 {
			here = places[p.Index]
		}
	}
	sum := sha256.Sum256([]byte(d.about()))
	mine := make([]float32, len(sum))
	for i, b := range sum {
		mine[i] = float32(b)
	}
	said, err := places.Share(ctx, ex, "about", here, func(int) ([]float32, error) { return mine, nil }, func(int) int { return len(mine) })
	for q, theirs := range said {
		if err == nil && theirs != nil && !slices.Equal(theirs, mine) {
			err = fmt.Errorf("%w: piece %d is computed with other parameters or settings than here; give all nodes the same", ErrConfig, q)
		}
	}
	return places, here, err
}

// verify compares what is computed here with its checksums.
func (d *Divided) verify(ctx context.Context) error {
	if d.cfg.Cluster.Spread == nil {
		return d.set.Verify(ctx)
	}
	for _, p := range d.pieces {
		if err := d.opened[p.Index].Verify(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the mappings.
func (d *Divided) Close() error {
	if d.pool != nil {
		d.pool.Close()
	}
	if d.cfg.Cluster.Spread != nil {
		return nil
	}
	var err error
	for _, p := range d.opened {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
	}
	return err
}

// Set returns the partition set.
func (d *Divided) Set() *pieces.Set { return d.set }

// Split returns the training nodes (0), those for validation (1) or for tests (2), that are here, by the ids that they have outside.
func (d *Divided) Split(i int) (here []uint32, err error) {
	nodes, err := d.set.Split(i)
	if err != nil {
		return nil, err
	}
	return here, graph.Guard(func() error {
		table := d.set.Borders().Table()
		for _, v := range nodes {
			switch p := d.opened[table[v/pieces.Border]]; {
			case p == nil:
			case p.Originals != nil:
				here = append(here, p.Originals[v-uint32(p.Of.First)])
			default:
				here = append(here, v)
			}
		}
		return nil
	})
}

// find returns which piece here has a node, by the id that it has outside, as which master; nil: none.
func (d *Divided) find(v uint32) (_ *store.Piece, at int) {
	for _, c := range d.pieces {
		p, at, found := d.opened[c.Index], int(v)-int(c.First), false
		if p.Originals != nil {
			at, found = slices.BinarySearch(p.Originals, v)
		} else {
			found = at >= 0 && at < c.Masters
		}
		if found {
			return p, at
		}
	}
	return nil, 0
}

// Here returns those of nodes, by the ids that they have outside, that are computed here, or that there are not.
func (d *Divided) Here(nodes []uint32) (here []uint32, err error) {
	if d.cfg.Cluster.Spread == nil {
		return nodes, nil
	}
	return here, graph.Guard(func() error {
		for _, v := range nodes {
			if p, _ := d.find(v); p != nil || int(v) >= d.set.NumNodes() {
				here = append(here, v)
			}
		}
		return nil
	})
}

// Named reports whether the data that the set was made of has names of nodes, and whether they are texts.
func (d *Divided) Named() (named, texts bool) {
	names := d.first().Names
	return names != nil, names.AreTexts()
}

// called returns the node of that name, by the id that it has outside; ok is false when none here has it.
func (d *Divided) called(name string) (v uint32, ok bool) {
	if named, _ := d.Named(); !named {
		v, ok = d.first().Names.Find(name, d.set.NumNodes())
		p, _ := d.find(v)
		return v, ok && p != nil
	}
	for _, c := range d.pieces {
		p := d.opened[c.Index]
		at, ok := p.Dataset().Names.Find(name, c.Masters)
		switch {
		case !ok:
		case p.Originals != nil:
			return p.Originals[at], true
		default:
			return c.First + at, true
		}
	}
	return 0, false
}

// AppendName appends what a node that is computed here is called to b; nodes have the ids that they have outside.
func (d *Divided) AppendName(b []byte, v uint32) []byte {
	if p, at := d.find(v); p != nil && p.Dataset().Names != nil {
		return p.Dataset().Names.Append(b, uint32(at))
	}
	return strconv.AppendUint(b, uint64(v), 10)
}

// Recipe returns how the columns of the data became features and classes (importer.ParseRecipe); nil: the set does not say.
func (d *Divided) Recipe() []byte { return d.first().Recipe }
