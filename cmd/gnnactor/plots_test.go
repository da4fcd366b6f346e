package main

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/gnnactor/gnnactor/rng"
)

// Ticks are few, round numbers, evenly apart, each with its own label, which says its value.
func TestRoundTicks(t *testing.T) {
	labels := func(low, high float64) (all []string) {
		for _, tick := range (roundTicks{}).Ticks(low, high) {
			all = append(all, tick.Label)
		}
		return all
	}
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{17243, 92804, "20,000 30,000 40,000 50,000 60,000 70,000 80,000 90,000"}, {0, 0.95, "0 0.2 0.4 0.6 0.8"}, {0.955, 0.981, "0.955 0.960 0.965 0.970 0.975 0.980"},
		{-1, 1, "-1.0 -0.5 0 0.5 1.0"}, {0, 0.42, "0 0.1 0.2 0.3 0.4"}, {3e9, 8e9, "3e+09 4e+09 5e+09 6e+09 7e+09 8e+09"}, {5, 5, "5"},
	} {
		if got := strings.Join(labels(c.low, c.high), " "); got != c.want {
			t.Errorf("from %v to %v: %s, want %s", c.low, c.high, got, c.want)
		}
	}
	key := rng.New(3)
	for i := range uint64(2000) {
		low := (key.Float64(3*i) - 0.5) * math.Pow10(int(key.Uintn(3*i+1, 9))-3)
		high := low + math.Pow10(int(key.Uintn(3*i+2, 7))-3)*(0.1+key.Float64(3*i+3))
		ticks := (roundTicks{}).Ticks(low, high)
		if len(ticks) < 3 || len(ticks) > 9 {
			t.Errorf("from %v to %v: %d ticks", low, high, len(ticks))
			continue
		}
		step := ticks[1].Value - ticks[0].Value
		for k, tick := range ticks {
			x, err := strconv.ParseFloat(strings.ReplaceAll(tick.Label, ",", ""), 64)
			if err != nil || math.Abs(x-tick.Value) > 0.01*step && high < 1e7 || tick.Value < low-0.01*step || tick.Value > high+0.01*step {
				t.Errorf("from %v to %v: %q at %v", low, high, tick.Label, tick.Value)
			}
			if k > 0 && math.Abs(tick.Value-ticks[k-1].Value-step) > 1e-6*step {
				t.Errorf("from %v to %v: %v is after %v", low, high, tick.Value, ticks[k-1].Value)
			}
		}
		if m := math.Pow(10, math.Mod(math.Log10(step)+20+1e-9, 1)); !slices.ContainsFunc([]float64{1, 2, 5, 10}, func(n float64) bool { return math.Abs(m-n) < 1e-3 }) {
			t.Errorf("from %v to %v: ticks are %v apart", low, high, step)
		}
	}
}

// A title that is too long for its plot is made smaller, so that it fits in the fonts of other machines, too; others keep their size.
func TestTitlesFit(t *testing.T) {
	long, short := newPlot(strings.Repeat("a title ", 12)), newPlot("loss")
	size := short.Title.TextStyle.Font.Size
	for _, p := range []*plot.Plot{long, short} {
		addLine(p, "", plotter.XYs{{X: 1, Y: 1}, {X: 2, Y: 3}}, graphColor)
	}
	const width = 12 * vg.Centimeter
	if err := drawPlots(filepath.Join(t.TempDir(), "p.svg"), [][]*plot.Plot{{long, short}}, width, 5*vg.Centimeter, 0, nil); err != nil {
		t.Fatal(err)
	}
	if got := widerFonts * long.Title.TextStyle.Width(long.Title.Text); got > width/2 {
		t.Errorf("the title takes %v of %v", got, width/2)
	}
	if short.Title.TextStyle.Font.Size != size {
		t.Errorf("a short title has size %v, had %v", short.Title.TextStyle.Font.Size, size)
	}
}
