package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	stdruntime "runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/scheduler"
)

// Divided is a partition set (package pieces) with a model, which computes piece by piece what a Runtime
// computes of a whole graph: the same bits, of the graph with the set's ids. Outside nodes have the ids that
// they had before they were divided. One goroutine may use it at a time.
type Divided struct {
	cfg     settings
	log     *slog.Logger
	set     *pieces.Set
	kernels cpu.Set
	opened  []*store.Piece
	pieces  []*compute.Piece
	model   *compute.Model
	params  []float32
	pool    *pool.Pool
}

// OpenDivided opens the partition set config.Data.Path and the parameters of config.Model. Edges have to lie
// with their targets. What a Runtime can and this cannot is refused by name.
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
		if cfg.Model.Saved, err = OpenModel(ctx, cfg.Model.Params); err != nil {
			return nil, err
		}
	}
	if d.set, err = pieces.Open(cfg.Data.Path); err != nil {
		return nil, err
	}
	if err := d.openPieces(ctx); err != nil {
		return nil, err
	}
	first := d.opened[0].Dataset()
	whole := *first
	whole.Graph = graph.Elsewhere(d.set.NumNodes(), d.edges())
	if whole.NodeFeatures == nil || whole.Labels == nil {
		return nil, fmt.Errorf("%w: %s has no node features, or no labels; add them to the data", ErrNoModel, d.set.Name())
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

// openPieces maps all pieces, and finds what they exchange.
func (d *Divided) openPieces(ctx context.Context) error {
	for i := range d.set.Pieces() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p, err := d.set.OpenPiece(i)
		if err != nil {
			return err
		}
		d.opened = append(d.opened, p)
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
			Index: i, First: uint32(p.Of.First), Masters: p.Masters, Borders: d.set.Borders(), In: p.In, Others: p.Sources, Reads: halo.Reads, Sends: halo.Sends, Features: features,
		})
	}
	return nil
}

// Close ends the mappings.
func (d *Divided) Close() error {
	if d.pool != nil {
		d.pool.Close()
	}
	var err error
	for _, p := range d.opened {
		err = errors.Join(err, p.Close())
	}
	return err
}

// Set returns the partition set.
func (d *Divided) Set() *pieces.Set { return d.set }

// Split returns the training nodes (0), those for validation (1) or for tests (2), by the ids that they have outside.
func (d *Divided) Split(i int) ([]uint32, error) {
	nodes, err := d.set.Split(i)
	if err != nil {
		return nil, err
	}
	return nodes, graph.Guard(func() error {
		table := d.set.Borders().Table()
		for k, v := range nodes {
			if p := d.opened[table[v/pieces.Border]]; p.Originals != nil {
				nodes[k] = p.Originals[v-uint32(p.Of.First)]
			}
		}
		return nil
	})
}

// Outputs are what a model made of every node of a divided graph.
type Outputs struct {
	d     *Divided
	shelf compute.Shelf
	Cols  int
	// Sent are the bytes of values that pieces sent each other, layer by layer (Model.Blocks).
	Sent []int64
}

// Infer computes the model's outputs for all nodes, exactly, as Runtime.Embed does. What is made of nodes lies in
// memory, or, if scratch is not empty, in files of that directory, piece by piece: a call that was interrupted,
// or killed, goes on from the layer that it was in when the same is computed there again; the caller removes
// the directory. done, which may be nil, hears of each layer. With Config.Data.Verify the set is verified, too.
func (d *Divided) Infer(ctx context.Context, scratch string, done func(done, of int)) (_ *Outputs, err error) {
	defer func() { err = damaged(err) }()
	exec := cpu.NewExec(d.pool, d.kernels)
	exec.SetPrecision(d.cfg.precision)
	peak, kept := d.model.PieceMemory(d.pieces)
	if scratch == "" {
		err := scheduler.Within(d.cfg.limit, "what inference takes that keeps its values in memory (--scratch DIR keeps them in files)", peak+kept)
		if err != nil {
			return nil, err
		}
	} else if err := scheduler.Within(d.cfg.limit, "what inference takes for the largest piece (more pieces are smaller)", peak); err != nil {
		return nil, err
	}
	var keep interface {
		compute.Shelf
		compute.Exchange
	} = compute.NewMemory()
	if scratch != "" {
		if keep, err = compute.OpenFolder(scratch, d.about()); err != nil {
			return nil, err
		}
	}
	counted := compute.NewCounted(keep)
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		return graph.Guard(func() error {
			return d.model.InferPieces(ctx, exec, d.params, compute.PieceInference{
				Pieces: d.pieces, Exchange: counted, Shelf: keep, Chunk: d.cfg.Memory.EvalChunk, Done: done,
			})
		})
	})
	if d.cfg.Data.Verify {
		both.Go(func() error {
			return graph.Guard(func() error { return d.set.Verify(ctx) })
		})
	}
	if err := both.Wait(); err != nil {
		return nil, err
	}
	o := &Outputs{d: d, shelf: keep, Cols: d.model.Spec().OutDim}
	for l := range d.model.Blocks() {
		o.Sent = append(o.Sent, counted.Bytes(compute.PieceRound(l)))
	}
	return o, nil
}

// about says what values in a scratch directory were computed from.
func (d *Divided) about() string {
	h := sha256.New()
	for _, v := range d.params {
		fmt.Fprintf(h, "%x ", v)
	}
	b, err := json.MarshalIndent(map[string]any{
		"version": 1, "data": d.set.Fingerprint(), "normalize_features": d.cfg.Data.NormalizeFeatures, "model": d.model.Spec(),
		"parameters": fmt.Sprintf("%x", h.Sum(nil)), "precision": d.cfg.precision.String(), "kernels": d.kernels.String(),
	}, "", "  ")
	if err != nil {
		panic(err) // plain data always encodes
	}
	return string(b) + "\n"
}

// Pieces has use called with what each piece has: the ids of nodes and a row for each, which are not use's any more when it returns.
func (o *Outputs) Pieces(use func(ids []uint32, rows cpu.Matrix[float32]) error) error {
	return graph.Guard(func() error {
		for i, p := range o.d.opened {
			if p.Masters == 0 {
				continue
			}
			m, err := o.shelf.Get(compute.PieceOutputs, i)
			if err != nil {
				return err
			}
			ids := p.Originals
			if ids == nil {
				ids = make([]uint32, p.Masters)
				for v := range ids {
					ids[v] = uint32(p.Of.First) + uint32(v)
				}
			}
			if err := use(ids, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// Rows returns the outputs of nodes, by the ids that they have outside. One that there is not is an error that wraps ErrNode.
func (o *Outputs) Rows(nodes []uint32) (*Embedding, error) {
	n := o.d.set.NumNodes()
	for _, v := range nodes {
		if int(v) >= n {
			return nil, fmt.Errorf("%w: node %d is out of range [0, %d)", ErrNode, v, n)
		}
	}
	e := &Embedding{Rows: len(nodes), Cols: o.Cols, Data: make([]float32, len(nodes)*o.Cols)}
	return e, o.Pieces(func(ids []uint32, m cpu.Matrix[float32]) error {
		for i, v := range nodes {
			if at, found := slices.BinarySearch(ids, v); found {
				copy(e.Data[i*e.Cols:(i+1)*e.Cols], m.Row(at))
			}
		}
		return nil
	})
}

// Predict returns the most probable class of nodes, as Runtime.Predict does.
func (o *Outputs) Predict(nodes []uint32) ([]Prediction, error) {
	e, err := o.Rows(nodes)
	if err != nil {
		return nil, err
	}
	p := make([]Prediction, e.Rows)
	for i := range p {
		p[i] = predict(e.Data[i*e.Cols : (i+1)*e.Cols])
	}
	return p, nil
}

// Evaluate compares the outputs of a split's nodes, as Set.Split numbers them, with their labels: what Runtime.EvaluateAUC
// says of the graph with the set's ids, to the bit. It takes the memory of a row for each of the nodes.
func (o *Outputs) Evaluate(split int) (m Metrics, err error) {
	nodes, err := o.d.set.Split(split)
	if err != nil || len(nodes) == 0 {
		return Metrics{Accuracy: math.NaN(), Loss: math.NaN(), AUC: math.NaN()}, err
	}
	err = graph.Guard(func() error {
		out := cpu.NewMatrix[float32](len(nodes), o.Cols)
		labels := &graph.Labels{NumClasses: o.Cols}
		if o.d.opened[0].Dataset().Labels.IsMulti() {
			labels.Multi = make([]uint8, len(nodes)*o.Cols)
		} else {
			labels.Class = make([]int32, len(nodes))
		}
		at := make([]uint32, len(nodes))
		for i := range at {
			at[i] = uint32(i)
		}
		for k, p := range o.d.opened {
			if p.Masters == 0 {
				continue
			}
			rows, err := o.shelf.Get(compute.PieceOutputs, k)
			if err != nil {
				return err
			}
			l := p.Dataset().Labels
			for i, v := range nodes {
				local := int(v) - int(p.Of.First)
				if local < 0 || local >= p.Masters {
					continue
				}
				copy(out.Row(i), rows.Row(local))
				if l.IsMulti() {
					copy(labels.Multi[i*o.Cols:(i+1)*o.Cols], l.Multi[local*o.Cols:])
				} else {
					labels.Class[i] = l.Class[local]
				}
			}
		}
		m = score(labels, out, at, true)
		return nil
	})
	return m, err
}
