// Papers says which field a paper is of, by its words and by whom it cites; those that appeared after the model was trained, too.
//
// The model is trained on the papers of some years, saved, and opened again for a graph with a year more, of whose papers
// nobody has said the field. The picture shows which field was predicted of which.
//
//	go run ./examples/papers -picture papers.svg
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/plotfile"
	"github.com/gnnactor/gnnactor/runtime"
)

var fields = []string{"agents", "databases", "graphs", "languages", "networks", "vision"}

const old, all, words = 1500, 1800, 30

func main() {
	picture := flag.String("picture", "", "draw which field was predicted of which to this .svg or .png")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *picture); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, picture string) (err error) {
	dir, err := os.MkdirTemp("", "papers")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	model := filepath.Join(dir, "fields.safetensors")
	later, field, err := papers(rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		return err
	}
	if err := train(ctx, out, later, field, model, picture); err != nil {
		return err
	}
	m, err := runtime.OpenModel(ctx, model)
	if err != nil {
		return err
	}
	cfg, err := m.Config()
	if err != nil {
		return err
	}
	cfg.Data.Dataset = later
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	var ids []uint32
	for v := uint32(old); v < all; v++ {
		ids = append(ids, v)
	}
	predicted, err := rt.Predict(ctx, ids)
	if err != nil {
		return err
	}
	right := 0
	for i, p := range predicted {
		if p.Class == int(field[ids[i]]) {
			right++
		}
		if i < 3 {
			fmt.Fprintf(out, "paper %d is of %s (%.0f %%)\n", ids[i], fields[p.Class], 100*p.Probability)
		}
	}
	fmt.Fprintf(out, "of %d papers that the model had not seen %.0f %% are of the field that it says\n", len(ids), 100*float64(right)/float64(len(ids)))
	return nil
}

// train saves a model of the papers that there are at first.
func train(ctx context.Context, out io.Writer, later *graph.Dataset, field []int32, model, picture string) (err error) {
	ds, err := before(later, field)
	if err != nil {
		return err
	}
	cfg := runtime.DefaultConfig()
	cfg.Data.Dataset = ds
	cfg.Model.Hidden, cfg.Training.Epochs, cfg.Training.Keep, cfg.Sampling.BatchSize = 16, 20, "best", 128
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	for ev, err := range rt.Train(ctx) {
		if err != nil {
			return err
		}
		if ev.Kind == runtime.EventEpoch {
			fmt.Fprintf(out, "epoch %2d  loss %.3f  validation accuracy %.3f\n", ev.Epoch+1, ev.Loss, ev.ValidAccuracy)
		}
	}
	if err := rt.Save(ctx, model); err != nil || picture == "" {
		return err
	}
	counts, err := rt.Confusion(ctx, ds.Test)
	if err != nil {
		return err
	}
	return draw(counts, picture)
}

// confusion is counts as a grid, the first field at the top.
type confusion [][]int

func (c confusion) Dims() (cols, rows int) { return len(c), len(c) }
func (c confusion) Z(col, row int) float64 { return float64(c[len(c)-1-row][col]) }
func (c confusion) X(col int) float64      { return float64(col) }
func (c confusion) Y(row int) float64      { return float64(row) }

func draw(counts [][]int, picture string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "papers of each field, by the field predicted", "predicted", "field"
	var across, down plot.ConstantTicks
	for i, name := range fields {
		across, down = append(across, plot.Tick{Value: float64(i), Label: name}), append(down, plot.Tick{Value: float64(len(fields) - 1 - i), Label: name})
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = across, down
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size, p.Y.Tick.Label.XAlign = vg.Points(8), vg.Points(8), -1.3
	p.Add(plotter.NewHeatMap(confusion(counts), palette.Reverse(moreland.ExtendedBlackBody()).Palette(64)))
	return plotfile.Save(p, 14*vg.Centimeter, 12*vg.Centimeter, picture)
}

// papers returns all papers, of which nobody has said the field, and their fields. A paper cites earlier ones, mostly of its
// field; one in three of its words is of the field.
func papers(random *rand.Rand) (*graph.Dataset, []int32, error) {
	field, x := make([]int32, all), make([]float32, all*words)
	var src, dst []uint32
	for v := range all {
		field[v] = int32(random.IntN(len(fields)))
		for range 9 {
			w := random.IntN(words)
			if random.IntN(3) == 0 {
				w = w/len(fields)*len(fields) + int(field[v])
			}
			x[v*words+w] = 1
		}
		for range min(v, 4) {
			u := random.IntN(v)
			for try := 0; try < 20 && field[u] != field[v] && random.IntN(5) > 0; try++ {
				u = random.IntN(v)
			}
			src, dst = append(src, uint32(v), uint32(u)), append(dst, uint32(u), uint32(v))
		}
	}
	g, err := graph.FromEdges(all, src, dst, nil)
	return &graph.Dataset{Name: "papers", Graph: g, NodeFeatures: graph.NewFeatures(all, words, x)}, field, err
}

// before returns the first papers with their fields.
func before(later *graph.Dataset, field []int32) (*graph.Dataset, error) {
	var src, dst []uint32
	ds := &graph.Dataset{Name: "papers before", Labels: &graph.Labels{NumClasses: len(fields), Class: field[:old]}}
	x := make([]float32, old*words)
	for v := range uint32(old) {
		later.NodeFeatures.Row(x[v*words:(v+1)*words], int(v))
		for _, u := range later.Graph.Indices[later.Graph.Indptr[v]:later.Graph.Indptr[v+1]] {
			if u < old {
				src, dst = append(src, u), append(dst, v)
			}
		}
		switch v % 5 {
		case 0:
			ds.Train = append(ds.Train, v)
		case 1:
			ds.Valid = append(ds.Valid, v)
		default:
			ds.Test = append(ds.Test, v)
		}
	}
	ds.NodeFeatures = graph.NewFeatures(old, words, x)
	var err error
	ds.Graph, err = graph.FromEdges(old, src, dst, nil)
	return ds, err
}
