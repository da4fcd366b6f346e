// Recommendation names the books that a reader may like, by what others read.
//
// Readers and books are nodes, and an edge is a book that was read. What is learnt are links: which reader and book go
// together. Some links are held out and ranked among pairs that were not read; then the best books are named
// for a few readers, of those that they have not read.
//
//	go run ./examples/recommendation -picture recommendation.svg
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
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/plotfile"
	"github.com/gnnactor/gnnactor/runtime"
)

const readers, books = 900, 300 // the readers are the first nodes

var genres = []string{"crime", "fantasy", "history", "poetry", "science", "travel"}

func genre(book uint32) int { return int(book-readers) % len(genres) }

func main() {
	picture := flag.String("picture", "", "draw the ranks while training to this .svg or .png")
	tables := flag.String("tables", "", "only write read.csv, all.csv and books.csv of the library to this directory")
	flag.Parse()
	if *tables != "" {
		if err := write(*tables); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(context.Background(), os.Stdout, *picture); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, picture string) (err error) {
	ds, tastes, err := library(rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		return err
	}
	cfg := runtime.DefaultConfig()
	cfg.Data.Dataset, cfg.Model.Task = ds, "link"
	cfg.Model.Hidden, cfg.Model.Dropout, cfg.Training.Epochs = 32, 0, 8
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Stop()) }()
	var ranks plotter.XYs
	for ev, err := range rt.Train(ctx) {
		if err != nil {
			return err
		}
		if ev.Kind != runtime.EventEpoch {
			continue
		}
		m, err := rt.EvaluateLinks(ctx, runtime.ValidLinks)
		if err != nil {
			return err
		}
		ranks = append(ranks, plotter.XY{X: float64(ev.Epoch + 1), Y: m.Hits10})
	}
	fitting, named := 0, 0
	for reader := range uint32(50) {
		best, err := recommended(ctx, rt, reader, 5)
		if err != nil {
			return err
		}
		var lines []string
		for _, b := range best {
			g := genre(b)
			if named++; tastes[reader][g] {
				fitting++
			}
			lines = append(lines, fmt.Sprintf("%s %d", genres[g], b-readers))
		}
		if reader < 4 {
			fmt.Fprintf(out, "reader %d, of %s: %s\n", reader, likes(tastes[reader]), strings.Join(lines, ", "))
		}
	}
	m, err := rt.EvaluateLinks(ctx, runtime.TestLinks)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "of %d books held out %.0f %% are among the first 10 of 101; %.0f %% of what is named is to the reader's taste\n", m.Count, 100*m.Hits10, 100*float64(fitting)/float64(named))
	if picture == "" {
		return nil
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "books held out among the first 10 of 101", "epoch", "share"
	p.X.Max, p.Y.Min, p.Y.Max = 8.2, 0, 0.5
	if err := plotutil.AddLinePoints(p, ranks); err != nil {
		return err
	}
	return plotfile.Save(p, 12*vg.Centimeter, 9*vg.Centimeter, picture)
}

// recommended returns the k books that go best with a reader.
func recommended(ctx context.Context, rt *runtime.Runtime, reader uint32, k int) (best []uint32, err error) {
	all := make([]uint32, books) // other readers are passed over
	for i := range all {
		all[i] = uint32(readers + i)
	}
	links, err := rt.TopLinks(ctx, []uint32{reader}, k, false, all)
	if err != nil {
		return nil, err
	}
	for _, l := range links[0] {
		best = append(best, l.Node)
	}
	return best, nil
}

func likes(taste [6]bool) string {
	var names []string
	for g, liked := range taste {
		if liked {
			names = append(names, genres[g])
		}
	}
	return strings.Join(names, " and ")
}

// library returns who read what: readers like two genres, and take one book in eight from elsewhere. Of a book its genre is
// known, of a reader nothing: what a reader likes is in the edges alone.
func library(random *rand.Rand) (*graph.Dataset, [readers][6]bool, error) {
	var tastes [readers][6]bool
	var src, dst []uint32
	for r := range uint32(readers) {
		liked := random.Perm(len(genres))[:2]
		for _, g := range liked {
			tastes[r][g] = true
		}
		read := map[uint32]bool{}
		for len(read) < 12 {
			b := readers + uint32(random.IntN(books))
			if random.IntN(8) > 0 && !tastes[r][genre(b)] || read[b] {
				continue
			}
			read[b] = true
			src, dst = append(src, r, b), append(dst, b, r)
		}
	}
	g, err := graph.FromEdges(readers+books, src, dst, nil)
	if err != nil {
		return nil, tastes, err
	}
	x := make([]float32, (readers+books)*len(genres))
	for b := uint32(readers); b < readers+books; b++ {
		x[int(b)*len(genres)+genre(b)] = 1
	}
	return &graph.Dataset{Name: "library", Graph: g, NodeFeatures: graph.NewFeatures(readers+books, len(genres), x)}, tastes, nil
}

// write writes the library as tables: who read what, the genre of what has one, and which nodes are books.
func write(dir string) error {
	ds, _, err := library(rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		return err
	}
	name := func(v uint32) string {
		if v < readers {
			return fmt.Sprint("reader", v)
		}
		return fmt.Sprint("book", v-readers)
	}
	read, all, some := "src,dst\n", "id,genre\n", "id\n"
	for v := range uint32(readers + books) {
		if v < readers {
			for _, b := range ds.Graph.InNeighbors(v) {
				read += name(v) + "," + name(b) + "\n"
			}
			all += name(v) + ",\n"
			continue
		}
		all += name(v) + "," + genres[genre(v)] + "\n"
		some += name(v) + "\n"
	}
	for file, text := range map[string]string{"read.csv": read, "all.csv": all, "books.csv": some} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
