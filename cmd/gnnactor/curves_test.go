package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

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
		c := &curves{links: links}
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
