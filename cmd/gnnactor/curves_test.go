package main

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/gnnactor/gnnactor/runtime"
)

// someCurves are those of n epochs of which every second one was evaluated.
func someCurves(n int) *curves {
	c := new(curves)
	for i := range n {
		ev := runtime.Event{Kind: runtime.EventEpoch, Epoch: i, Loss: 2 / float64(i+1), TrainAccuracy: 1 - 1/float64(i+2), ValidAccuracy: math.NaN(), TestAccuracy: math.NaN()}
		if i%2 == 0 {
			ev.ValidAccuracy = 0.8 - 0.7/float64(i+1)
		}
		c.event(ev)
		c.event(runtime.Event{Kind: runtime.EventStep, Loss: 100})
	}
	return c
}

func TestCurvesTakeWhatWasMeasured(t *testing.T) {
	c := someCurves(5)
	if len(c.loss) != 5 || len(c.train) != 5 || len(c.valid) != 3 || len(c.test) != 0 {
		t.Errorf("got %d, %d, %d, %d points", len(c.loss), len(c.train), len(c.valid), len(c.test))
	}
	if c.valid[1].X != 3 {
		t.Errorf("the second evaluated epoch is drawn at %v, want 3", c.valid[1].X)
	}
}

// Both formats decode, for any number of epochs, none included.
func TestCurvesSave(t *testing.T) {
	for _, n := range []int{0, 1, 2, 200} {
		for _, ext := range []string{".svg", ".PNG"} {
			t.Run(fmt.Sprint(n, ext), func(t *testing.T) {
				name := filepath.Join(t.TempDir(), "c"+ext)
				if err := someCurves(n).save(name, nil); err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if ext == ".PNG" {
					img, err := png.Decode(bytes.NewReader(text))
					if err != nil {
						t.Fatal(err)
					}
					if b := img.Bounds(); b.Dx() < 800 || b.Dy() < 300 {
						t.Errorf("the image is %v", b)
					}
					return
				}
				dec := xml.NewDecoder(bytes.NewReader(text))
				for err == nil {
					_, err = dec.Token()
				}
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
			})
		}
	}
}

// As CSV each epoch has a line, with nothing where nothing was measured.
func TestCurvesAsCSV(t *testing.T) {
	c := someCurves(3)
	c.epochs[2].Applied, c.epochs[2].Wall, c.epochs[2].Stages = 6, 1500*time.Millisecond, map[string]time.Duration{"compute": time.Second}
	name := filepath.Join(t.TempDir(), "c.csv")
	if err := errors.Join(checkPlot(name, ".svg", ".csv"), c.save(name, nil)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil || len(lines) != 4 {
		t.Fatalf("%q, %v", lines, err)
	}
	want := map[string]string{"epoch": "3", "steps": "6", "seconds": "1.5", "sample_seconds": "0", "compute_seconds": "1", "loss": "0.666666667", "train_accuracy": "0.75", "valid_accuracy": "0.566666667", "test_accuracy": ""}
	for i, column := range lines[0] {
		if w, ok := want[column]; ok && lines[3][i] != w {
			t.Errorf("%s: %q, want %q", column, lines[3][i], w)
		}
		delete(want, column)
	}
	if len(want) > 0 {
		t.Errorf("no columns for %v", want)
	}
}

func TestWholeTicks(t *testing.T) {
	for _, c := range []struct{ low, high float64 }{{1, 1}, {1, 2}, {1, 10}, {1, 200}, {3, 1e6}, {0.5, 1.5}} {
		ticks := wholeTicks{}.Ticks(c.low, c.high)
		if len(ticks) < 1 || len(ticks) > 10 {
			t.Errorf("%v: %d ticks", c, len(ticks))
		}
		for _, k := range ticks {
			if k.Value != math.Trunc(k.Value) || k.Value < c.low || k.Value > c.high || k.Label == "" {
				t.Errorf("%v: tick %+v", c, k)
			}
		}
	}
}

// With links the curves are of AUCs, and say so; accuracies of training pairs are
// no part of them.
func TestCurvesOfLinks(t *testing.T) {
	for links, want := range map[bool]string{false: "accuracy", true: "AUC"} {
		c := &curves{figure: map[bool]splitFigure{true: aucFigure}[links]}
		for epoch := range 3 {
			c.event(epochEvent(epoch))
		}
		p := c.accuracyPlot()
		if p.Title.Text != want {
			t.Errorf("links %v: the title is %q", links, p.Title.Text)
		}
		if links == (c.train != nil) {
			t.Errorf("links %v: %d points of training", links, len(c.train))
		}
	}
}

// The legend covers no line, whatever the shapes, and its size is what it is taken for.
func TestLegendCoversNoLine(t *testing.T) {
	shapes := map[string]func(x float64) float64{
		"rising": func(x float64) float64 { return 1 - math.Exp(-5*x) }, "falling": func(x float64) float64 { return 0.9 - 0.3*x },
		"late fall": func(x float64) float64 { return 0.9 - 0.5*math.Pow(x, 9) }, "flat": func(float64) float64 { return 0.5 },
		"jumping": func(x float64) float64 { return 0.5 + 0.4*math.Cos(40*x) }, "valley": func(x float64) float64 { return (x - 0.5) * (x - 0.5) },
	}
	for name, valid := range shapes {
		for other, test := range shapes {
			c := &curves{figure: aucFigure}
			for i := range 30 {
				x := float64(i) / 29
				c.event(runtime.Event{Kind: runtime.EventEpoch, Epoch: i, Loss: 1, ValidAccuracy: valid(x), TestAccuracy: test(x) - 0.01})
			}
			p := c.accuracyPlot()
			if legendCovers(p, c.valid, c.test) {
				t.Errorf("%s and %s: the legend lies over a line", name, other)
			}
			addLine(p, "train", c.valid, color.Black) // the most that there is in one
			area := p.DataCanvas(draw.New(vgimg.New(curvesWidth/2, curvesHeight)))
			of, box := area.Max.Sub(area.Min), p.Legend.Rectangle(area)
			if size := box.Max.Sub(box.Min); size.X > legendWidth*of.X || size.Y > legendHeight*of.Y {
				t.Fatalf("the legend takes %.2f by %.2f of the plot", size.X/of.X, size.Y/of.Y)
			}
		}
	}
}
