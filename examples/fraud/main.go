// Fraud ranks accounts by how much their transfers look like those of money launderers.
//
// Four accounts in a hundred are a launderer's. Much of what they move goes to each other, in amounts just below what
// banks report, and at night; honest people do each of that, too, and little is known of an account alone. Trained are two
// models: one sees who pays whom, the other reads amount and hour of each transfer as well (edge features). As almost all
// accounts are honest, classes are weighted.
//
//	go run ./examples/fraud -picture fraud.svg
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/plotfile"
	"github.com/gnnactor/gnnactor/runtime"
)

func main() {
	picture := flag.String("picture", "", "draw precision over recall to this .svg or .png")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *picture); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, picture string) error {
	ds, err := transfers(3000, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		return err
	}
	var curves []any // of plotutil
	for _, m := range []struct {
		name string
		read bool
	}{{"who pays whom", false}, {"amounts and hours as well", true}} {
		suspected, err := train(ctx, ds, m.read)
		if err != nil {
			return err
		}
		curve, average := precision(suspected, ds.Labels.Class)
		curves = append(curves, m.name, curve)
		const asked = 24
		caught := 0
		for _, v := range suspected[:asked] {
			caught += int(ds.Labels.Class[v])
		}
		fmt.Fprintf(out, "%-26s average precision %.2f; of the %d most suspected %d launder\n", m.name, average, asked, caught)
	}
	if picture == "" {
		return nil
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "launderers among those suspected", "recall", "precision"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1.03, 0, 1
	p.Legend.Left = true
	if err := plotutil.AddLines(p, curves...); err != nil {
		return err
	}
	return plotfile.Save(p, 12*vg.Centimeter, 9*vg.Centimeter, picture)
}

// train returns the test accounts, the most suspected first.
func train(ctx context.Context, ds *graph.Dataset, read bool) (suspected []uint32, err error) {
	cfg := runtime.DefaultConfig()
	cfg.Data.Dataset = ds
	cfg.Model.Name, cfg.Model.EdgeFeatures, cfg.Model.Hidden, cfg.Model.Heads = "gat", read, 16, 2
	cfg.Training.ClassWeights, cfg.Training.Epochs = "balanced", 20
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	for _, err := range rt.Train(ctx) {
		if err != nil {
			return nil, err
		}
	}
	e, err := rt.Embed(ctx, ds.Test) // a row of two logits for each
	if err != nil {
		return nil, err
	}
	score := map[uint32]float32{}
	for i, v := range ds.Test {
		score[v] = e.Data[2*i+1] - e.Data[2*i]
	}
	suspected = slices.Clone(ds.Test)
	slices.SortStableFunc(suspected, func(a, b uint32) int { return cmp.Compare(score[b], score[a]) })
	return suspected, nil
}

// precision returns the share of launderers among the first so many, over the share of all launderers that these are, and
// its mean over the launderers.
func precision(suspected []uint32, class []int32) (curve plotter.XYs, average float64) {
	all, found := 0, 0
	for _, v := range suspected {
		all += int(class[v])
	}
	for i, v := range suspected {
		if class[v] == 1 {
			found++
			p := float64(found) / float64(i+1)
			curve, average = append(curve, plotter.XY{X: float64(found) / float64(all), Y: p}), average+p/float64(all)
		}
	}
	return curve, average
}

// transfers returns n accounts with the transfers between them, each as an edge either way.
func transfers(n int, random *rand.Rand) (*graph.Dataset, error) {
	const cols = 4
	ds := &graph.Dataset{Name: "transfers", Labels: &graph.Labels{NumClasses: 2, Class: make([]int32, n)}}
	var launderers []int
	x := make([]float32, cols*n) // age, balance and so on, which say little
	for v := range n {
		if random.IntN(25) == 0 {
			ds.Labels.Class[v], launderers = 1, append(launderers, v)
		}
		for j := range cols {
			x[cols*v+j] = float32(random.NormFloat64()) + 0.6*float32(ds.Labels.Class[v])
		}
		switch split := random.IntN(4); split {
		case 0, 1:
			ds.Train = append(ds.Train, uint32(v))
		case 2:
			ds.Valid = append(ds.Valid, uint32(v))
		default:
			ds.Test = append(ds.Test, uint32(v))
		}
	}
	type pair [2]uint32
	told := map[pair][2]float32{} // logarithm of the amount in thousands, and whether at night
	var src, dst []uint32
	pay := func(from, to int, amount, night float32) {
		for _, p := range []pair{{uint32(from), uint32(to)}, {uint32(to), uint32(from)}} {
			if _, again := told[p]; !again && from != to {
				src, dst, told[p] = append(src, p[0]), append(dst, p[1]), [2]float32{amount, night}
			}
		}
	}
	for v := range n {
		for range 5 {
			to, amount, night := random.IntN(n), float32(random.NormFloat64()), float32(0)
			hidden := ds.Labels.Class[v] == 1 && random.IntN(5) > 1
			if hidden && random.IntN(5) > 0 {
				to = launderers[random.IntN(len(launderers))]
			}
			if hidden || random.IntN(10) == 0 {
				amount = float32(math.Log(9.5 + 0.4*random.Float64()))
			}
			if hidden && random.IntN(3) > 0 || random.IntN(6) == 0 {
				night = 1
			}
			pay(v, to, amount, night)
		}
	}
	g, err := graph.FromEdges(n, src, dst, nil)
	if err != nil {
		return nil, err
	}
	var about []float32 // in the order in which the graph has the edges: those to node 0, to node 1, ...
	for v := range uint32(n) {
		for _, u := range g.Indices[g.Indptr[v]:g.Indptr[v+1]] {
			t := told[pair{u, v}]
			about = append(about, t[0], t[1])
		}
	}
	ds.Graph, ds.NodeFeatures, ds.EdgeFeatures = g, graph.NewFeatures(n, cols, x), graph.NewFeatures(len(src), 2, about)
	return ds, nil
}
