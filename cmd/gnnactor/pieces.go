package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
)

// divide writes the store, or what can be imported as one, as a partition set, and shows it.
func (a *app) divide(ctx context.Context, data, out string, o pieces.Options) error {
	bar := newTaskBar(a.stderr)
	defer bar.clear()
	o.Progress = bar.show
	began := time.Now()
	format, err := importer.DetectFormat(data)
	if err != nil {
		return err
	}
	if format != "store" {
		if err := pieces.CheckDestination(out, o.Overwrite); err != nil {
			return err
		}
		bar.show("importing", 0, 1)
		temporary := filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".store")
		name := filepath.Base(data)
		if err := importer.Import(ctx, data, temporary, importer.Options{Name: name, Overwrite: true}); err != nil {
			return err
		}
		defer os.RemoveAll(temporary) // a kill leaves it for the next call to replace
		data = temporary
	}
	var set *pieces.Set
	err = viewChecked(ctx, data, store.CheckOptions{WithoutNodeFeatures: true, Keep: true}, func(s *store.Store) (err error) {
		set, err = pieces.Create(ctx, out, s, o)
		return err
	})
	bar.clear()
	if err != nil {
		return err
	}
	if b := set.Borders(); len(slices.Compact(slices.Clone(b))) < len(b) {
		a.logf("some of the %d pieces have no nodes: a piece has a multiple of %d, of %s in all; fewer --parts do as well", o.Pieces, pieces.Border, formatCount(int(b[len(b)-1])))
	}
	return a.showPieces(ctx, set, time.Since(began), false)
}

// inspectPieces shows a partition set.
func (a *app) inspectPieces(ctx context.Context, dir string, verify bool) error {
	set, err := pieces.Open(dir)
	if err == nil && verify {
		err = set.Verify(ctx)
	}
	if err != nil {
		return err
	}
	return a.showPieces(ctx, set, 0, verify)
}

// piecesReport is what --output json prints of a partition set.
type piecesReport struct {
	Name   string `json:"name"`
	Method string `json:"method"`
	Seed   uint64 `json:"seed"`
	*pieces.Summary
	NodeBalance     float64  `json:"node_balance"` // the largest piece by the mean, as the next three
	EdgeBalance     float64  `json:"edge_balance"`
	ByteBalance     float64  `json:"byte_balance"`
	TrainBalance    *float64 `json:"train_balance"` // null: no training nodes
	CutShare        *float64 `json:"cut_share"`     // null: no edges
	Replication     float64  `json:"replication"`
	Fingerprint     string   `json:"fingerprint"`
	GraphDigest     string   `json:"graph_fingerprint"`
	Seconds         float64  `json:"seconds,omitempty"`
	EveryByteIsRead bool     `json:"verified"`
}

func (a *app) showPieces(ctx context.Context, s *pieces.Set, took time.Duration, verified bool) error {
	b := s.Balance()
	r := piecesReport{
		Name:        s.Name(),
		NodeBalance: b.Nodes, EdgeBalance: b.Edges, ByteBalance: b.Bytes, TrainBalance: number(b.Train), CutShare: number(b.CutShare), Replication: b.Replication,
		Fingerprint: s.Fingerprint(), GraphDigest: s.GraphFingerprint(), Seconds: took.Seconds(), EveryByteIsRead: verified,
	}
	r.Method, r.Seed, _ = s.Method()
	var err error
	if r.Summary, err = s.Summary(ctx); err != nil {
		return err
	}
	if a.output == outputJSON {
		return a.printJSON(r)
	}
	var t table
	t.row("piece", "nodes", "training", "edges", "sources outside", "targets outside", "size")
	for i, p := range r.Pieces {
		t.row(strconv.Itoa(i), formatCount(int(p.Masters)), formatCount(int(p.Train)), formatCount(int(p.Edges)), formatCount(int(p.Sources)), formatCount(int(p.Targets)), formatBytes(p.Bytes))
	}
	t.gap()
	t.row("method", fmt.Sprintf("%s, edges at %s", r.Method, r.EdgesLie))
	largest := fmt.Sprintf("%.2f of nodes, %.2f of edges, %.2f of bytes", b.Nodes, b.Edges, b.Bytes)
	if b.Train == b.Train { // there are some
		largest += fmt.Sprintf(", %.2f of training nodes", b.Train)
	}
	t.row("largest piece by the mean", largest)
	t.row("edges cut", formatPercent(b.CutShare))
	t.row("copies of a node", significant(b.Replication))
	if took > 0 {
		t.row("took", formatDuration(took))
	}
	if verified {
		t.row("every byte", "verified")
	}
	t.row("fingerprint", r.Fingerprint[:16]+"…")
	return t.write(a.stdout)
}

// number is x for JSON, which has no NaN.
func number(x float64) *float64 {
	if x != x {
		return nil
	}
	return &x
}
