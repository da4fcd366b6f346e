package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/scheduler"
	"github.com/gnnactor/gnnactor/training"
)

// overPieces is what the commands that infer say of partition sets.
const overPieces = `--data may be a partition set ('gnnactor partition --out DIR'): then all nodes are computed,
layer by layer and piece by piece, where edges lie at their targets with the bits of the graph of the same ids, else
with bits that are a function of the partition. With --scratch what is made of them lies in
files, so that memory is needed for one piece at a time, and a command that was interrupted or killed goes on from the layer that
it was in when it is given again.

With --cluster HOST:PORT the nodes of a cluster compute a set together, each the pieces that it holds, with the same bits: give all of them the same
command and parameters. Each says what is of its own nodes, and writes a file for each of its pieces: FILE-0003.npy with the rows of piece 3,
FILE-0003-ids.npy with their ids; when all pieces are written each node writes FILE.json, the list of them. What is measured is of all. If one is lost the others wait for it, and all compute again, with
--scratch from the layer that they were in.`

func addScratchFlag(cmd *cobra.Command, scratch *string) {
	cmd.Flags().StringVar(scratch, "scratch", "", "of a partition set: new or empty `DIR` for what is computed of nodes, which is removed at the end (default: in memory)")
}

// overPieces computes the outputs of all nodes of the partition set cfg.Data.Path, with the other nodes if c names a cluster, and has use take those
// of the pieces here; ready, unless nil, is asked before.
func (c *clusterFlags) overPieces(cmd *cobra.Command, a *app, cfg runtime.Config, config *configFlags, scratch string, ready func(d *runtime.Divided) error, use func(d *runtime.Divided, o *runtime.Outputs) error) (err error) {
	compute := func(ctx context.Context, cfg runtime.Config) error {
		return a.computePieces(ctx, cfg, scratch, ready, use)
	}
	c.infers = inferred(cmd)
	p, err := c.enter(cmd, a, &cfg, config.given)
	if err != nil {
		return err
	}
	if p == nil {
		err = compute(cmd.Context(), cfg)
	} else {
		defer func() { err = p.Leave(err) }()
		err = p.Compute(cmd.Context(), compute)
	}
	if err != nil || scratch == "" {
		return err
	}
	return os.RemoveAll(scratch)
}

// inferred is what the nodes of a cluster have to agree on of a command that infers: those that give the rows of other nodes, or in another way, do not
// wait for the same.
func inferred(cmd *cobra.Command) string {
	what := cmd.Name()
	for _, name := range []string{"ids", "split"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			what += " --" + name + " " + f.Value.String()
		}
	}
	if f := cmd.Flags().Lookup("out"); f != nil && plotFormat(f.Value.String()) == ".npy" {
		what += " --out .npy"
	}
	if long := 200; len(what) > long {
		what = fmt.Sprintf("%.*s… (SHA-256 %.8x)", long, what, sha256.Sum256([]byte(what)))
	}
	return what
}

func (a *app) computePieces(ctx context.Context, cfg runtime.Config, scratch string, ready func(d *runtime.Divided) error, use func(d *runtime.Divided, o *runtime.Outputs) error) (err error) {
	d, err := runtime.OpenDivided(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if ready != nil {
		if err := ready(d); err != nil {
			return err
		}
	}
	bar := newTaskBar(a.stderr)
	began := time.Now()
	o, err := d.Infer(ctx, scratch, func(done, of int) {
		bar.show(fmt.Sprintf("layer %d of %d computed", done, of), int64(done), int64(of))
	})
	bar.clear()
	if err != nil {
		return err
	}
	sent := int64(0)
	for _, n := range o.Sent {
		sent += n
	}
	a.logf("%s nodes in %d pieces, computed in %s; pieces exchanged %s", formatCount(d.Set().NumNodes()), len(d.Set().Pieces()), formatDuration(time.Since(began)), formatBytes(sent))
	return use(d, o)
}

func (a *app) evaluateDivided(ctx context.Context, d *runtime.Divided, o *runtime.Outputs) error {
	return a.showSplits(fmt.Sprintf("%s, a partition set", d.Set().Name()), splitNames[:], func(split int) (runtime.Metrics, error) { return o.Evaluate(ctx, split) }, nil)
}

// chosen returns the nodes that flags choose and that are computed here, and what they are called.
func chosen(ctx context.Context, d *runtime.Divided, o *runtime.Outputs, nodes *nodeFlags) (ids []uint32, c called, err error) {
	named, _ := d.Named()
	var find func(names []string) ([]uint32, error)
	if named {
		find = func(names []string) ([]uint32, error) { return o.Find(ctx, names) }
	}
	if ids, err = nodes.of(d.Set().NumNodes(), find, d.Split); err == nil {
		ids, err = d.Here(ids)
	}
	return ids, calledOver(d), err
}

// calledOver is calledIn for a partition set.
func calledOver(d *runtime.Divided) called {
	_, texts := d.Named()
	return called{d.AppendName, texts, d.Recipe()}
}

func (a *app) predictDivided(ctx context.Context, d *runtime.Divided, o *runtime.Outputs, nodes *nodeFlags, f *predictFlags) error {
	ids, c, err := chosen(ctx, d, o, nodes)
	if err != nil {
		return err
	}
	e, err := o.Rows(ids)
	if err != nil {
		return err
	}
	return a.printPredictions(ids, e, d.MultiLabel(), f, c)
}

func (a *app) embedDivided(ctx context.Context, d *runtime.Divided, o *runtime.Outputs, nodes *nodeFlags, out string) error {
	n := d.Set().NumNodes()
	if plotFormat(out) == ".npy" && nodes.ids == "" && nodes.split == "" {
		if d.Spreads() {
			return a.writeEach(ctx, out, d, o)
		}
		if err := writePieces(out, n, o); err != nil {
			return err
		}
		return a.showFile(out, n, o.Cols)
	}
	ids, c, err := chosen(ctx, d, o, nodes)
	if err != nil {
		return err
	}
	e, err := o.Rows(ids)
	if err != nil {
		return err
	}
	if out == "" {
		return a.printRows(ids, e, c)
	}
	if err := writeRows(out, ids, e, valueColumn, "embedding", c); err != nil {
		return err
	}
	return a.showFile(out, e.Rows, e.Cols)
}

func (a *app) showFile(out string, rows, cols int) error {
	if a.output == outputJSON {
		return a.printJSON(map[string]any{"file": out, "rows": rows, "cols": cols})
	}
	_, err := fmt.Fprintf(a.stdout, "%s: %s × %s float32\n", out, formatCount(rows), formatCount(cols))
	return err
}

// partList is the file that says which files hold the rows of all nodes: every node that computes pieces writes the same.
type partList struct {
	Rows  int        `json:"rows"`
	Cols  int        `json:"cols"`
	Data  string     `json:"data_fingerprint"`
	Parts []partFile `json:"parts"` // in order; one without nodes is left out
}

// partFile says which files have a piece's rows, and the ids of their nodes.
type partFile struct {
	Piece int    `json:"piece"`
	Rows  int64  `json:"rows"`
	File  string `json:"file"`
	IDs   string `json:"ids"`
}

// writeEach writes a file for each piece here, and one with the ids of its nodes; then, when all nodes have written theirs, the list of all.
func (a *app) writeEach(ctx context.Context, out string, d *runtime.Divided, o *runtime.Outputs) error {
	base := strings.TrimSuffix(out, ".npy")
	list := partList{Rows: d.Set().NumNodes(), Cols: o.Cols, Data: d.Set().Fingerprint()}
	files := map[int]partFile{}
	for i, p := range d.Set().Pieces() {
		if p.Masters > 0 {
			name := fmt.Sprintf("%s-%04d", filepath.Base(base), i)
			files[i] = partFile{i, p.Masters, name + ".npy", name + "-ids.npy"}
			list.Parts = append(list.Parts, files[i])
		}
	}
	if err := o.Pieces(func(piece int, ids []uint32, m cpu.Matrix[float32]) error {
		f := files[piece]
		err := atomicfile.Write(filepath.Join(filepath.Dir(base), f.IDs), 0o644, func(w io.Writer) error {
			if _, err := w.Write(headerNPY("<u4", len(ids))); err != nil {
				return err
			}
			return binary.Write(w, binary.LittleEndian, ids)
		})
		path := filepath.Join(filepath.Dir(base), f.File)
		if err == nil {
			err = atomicfile.Write(path, 0o644, func(w io.Writer) error {
				return writeNPY(w, &runtime.Embedding{Rows: m.Rows, Cols: m.Cols, Data: m.Data[:m.Rows*m.Cols]})
			})
		}
		if err != nil {
			return err
		}
		return a.showFile(path, m.Rows, m.Cols)
	}); err != nil {
		return err
	}
	if err := o.Rendezvous(ctx); err != nil {
		return err
	}
	b, err := json.MarshalIndent(&list, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(base+".json", 0o644, func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}

// writePieces is writeNPY for the outputs of n nodes: each piece's go where its nodes' rows are.
func writePieces(out string, n int, o *runtime.Outputs) (err error) {
	f, err := atomicfile.Create(out, 0o644)
	if err != nil {
		return err
	}
	header := headerNPY("<f4", n, o.Cols)
	if _, err = f.WriteAt(header, 0); err == nil {
		err = o.Pieces(func(_ int, ids []uint32, m cpu.Matrix[float32]) error {
			for from, to := 0, 0; from < len(ids); from = to {
				for to = from + 1; to < len(ids) && ids[to] == ids[to-1]+1; to++ {
				}
				rows := m.Data[from*m.Cols : to*m.Cols]
				b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rows))), 4*len(rows))
				if _, err := f.WriteAt(b, int64(len(header))+4*int64(ids[from])*int64(m.Cols)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		err = f.Finish()
	}
	if err == nil {
		err = f.Replace()
	}
	if err != nil && !errors.Is(err, atomicfile.ErrNotDurable) {
		err = errors.Join(err, f.Abort())
	}
	return err
}

// dividedRun is what a command knows of a training that is made again when pieces move, or a node is lost.
type dividedRun struct {
	steps *lineLog
	shown bool
	late  []int64 // gradients that were 0, 1, … steps late
}

// trainDivided trains on batches that all pieces compute together over the partition set cfg.Data.Path.
func (c *trainCommand) trainDivided(ctx context.Context, cmd *cobra.Command, cfg runtime.Config, run *dividedRun) (err error) {
	bad := cfg.NotInPieces()
	for _, flag := range []string{"plot", "metrics", "tensorboard", "baseline", "eval-every", "audit"} {
		if f := cmd.Flags().Lookup(flag); f.Changed && !(f.Value.Type() == "bool" && f.Value.String() == "false") {
			bad = append(bad, "--"+flag)
		}
	}
	if idle := c.cluster.idle(cmd); idle != nil {
		bad = append(bad, strings.Join(idle, ", ")+", which are of a cluster, without --cluster HOST:PORT")
	}
	if bad != nil {
		return usagef("batches that all pieces compute together, over a partition set, do not have: %s; leave that out, or train on the store that the set was made of", strings.Join(bad, "; "))
	}
	asynchronous := cfg.Training.Sync.Asynchronous()
	if asynchronous && run.late == nil {
		run.late = make([]int64, cfg.Training.Sync.Bound()+1)
	}
	loss := math.NaN()
	cfg.Observe = func(e runtime.Event) {
		loss = e.Loss // the last is of the end, and of the last epoch
		if run.steps.writeStep(e, asynchronous); e.Kind == runtime.EventStep && asynchronous {
			run.late[e.Staleness]++
		}
	}
	d, err := runtime.OpenDivided(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if !run.shown {
		run.shown = true
		c.logf("%s: %s nodes in %d pieces", d.Set().Name(), formatCount(d.Set().NumNodes()), len(d.Set().Pieces()))
	}
	began, start := time.Now(), d.ParametersSHA256()
	d.SpillTo(c.scratch)
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(scheduler.PiecesGCPercent))
	}
	tellResumed := sync.OnceFunc(func() {
		if d.Resumed() > 0 {
			c.logf("resumed after %d epochs", d.Resumed())
		}
	})
	err = d.Train(ctx, func(epoch int, loss, accuracy float64) error {
		tellResumed()
		c.logf("epoch %d of %d: loss %s, training accuracy %s", epoch+1, cfg.Training.Epochs, formatLoss(loss), formatPercent(accuracy))
		return nil
	})
	tellResumed()
	took := time.Since(began)
	// What ends too early is saved as far as it came, unless other nodes go on, or all do from a checkpoint.
	last := cfg.Cluster.Spread == nil && !errors.Is(err, runtime.ErrDamaged) || errors.Is(err, training.ErrLast)
	if c.save != "" && (err == nil || last && d.ParametersSHA256() != start) {
		if failed := d.Save(c.save); failed != nil {
			return errors.Join(err, fmt.Errorf("--save: %w", failed))
		}
		c.logf("parameters saved to %s", c.save)
	}
	if err != nil {
		return c.resumeHint(err, ctx, cfg.Checkpoint.Dir)
	}
	if c.scratch != "" {
		defer func() {
			if err == nil {
				err = os.RemoveAll(c.scratch)
			}
		}()
	}
	o, err := d.Infer(ctx, c.scratch, nil)
	if err != nil {
		return err
	}
	if c.output != outputJSON {
		c.logf("trained in %s", formatDuration(took))
		var late table
		late.gap()
		addStaleness(&late, run.late)
		if err := c.evaluateDivided(ctx, d, o); err != nil || len(late.rows) < 2 {
			return err
		}
		return late.write(c.stdout)
	}
	var split [3]runtime.Metrics
	for i := range split {
		if split[i], err = o.Evaluate(ctx, i); err != nil {
			return err
		}
	}
	result := map[string]any{
		"test_accuracy": finite(split[2].Accuracy), "valid_accuracy": finite(split[1].Accuracy), "train_loss": finite(loss),
		"epochs": cfg.Training.Epochs, "seconds": took.Seconds(), "batches": cfg.Training.Epochs * d.Steps(), "parameters_sha256": d.ParametersSHA256(),
		"peak_rss_bytes": peakRSS(),
	}
	if asynchronous {
		result["staleness"] = run.late
	}
	return c.printJSON(result)
}
