package main

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/gnnactor/gnnactor/runtime"
)

// timelineBatches is how many batches the time line shows: enough
// to see the rhythm, few enough to tell them apart.
const timelineBatches = 12

// timeline draws what each stage did while some batches were computed: a row
// for a stage, or several where its spans overlap, a bar for a span. The bars of
// a batch have one colour in all stages; copies to a device, of rows that several may need, are grey.
type timeline struct {
	rows  []string
	bars  []timelineBar
	width float64 // milliseconds
	first string  // the batches that were computed
	last  string
}

type timelineBar struct {
	row        int
	begin, end float64 // milliseconds
	batch      string
}

var stageOrder = []string{"sample", "reorder", "match", "load", "cache", "copy", "compute", "update"}

// newTimeline picks batches of spans; nil where nothing was computed.
func newTimeline(spans []runtime.Span) *timeline {
	var computed []runtime.Span
	for _, s := range spans {
		if s.Stage == "compute" {
			computed = append(computed, s)
		}
	}
	if len(computed) == 0 {
		return nil
	}
	slices.SortFunc(computed, func(a, b runtime.Span) int { return cmp.Compare(a.Begin, b.Begin) })
	// Out of the middle of the last epoch: at its ends stages wait for nothing
	// that they would overlap with, and what lies between two epochs is evaluation.
	last := epochOf(computed[len(computed)-1].Name)
	computed = computed[slices.IndexFunc(computed, func(s runtime.Span) bool { return epochOf(s.Name) == last }):]
	if spare := len(computed) - timelineBatches; spare > 0 {
		computed = computed[spare/2 : spare/2+timelineBatches]
	}
	from, to := computed[0].Begin, time.Duration(0)
	for _, s := range computed {
		to = max(to, s.Begin+s.Wall)
	}
	// What prepared the first of them is worth seeing, too, if it is not far.
	from -= (to - from) / 8
	t := &timeline{width: milliseconds(to - from), first: computed[0].Name, last: computed[len(computed)-1].Name}
	type row struct{ stage, lane int }
	var rows []row
	at := func(s runtime.Span) row { return row{slices.Index(stageOrder, s.Stage), s.Lane} }
	var seen []runtime.Span
	for _, s := range spans {
		if s.Begin+s.Wall <= from || s.Begin >= to || batchOf(s.Name) == "" && s.Stage != "copy" {
			continue
		}
		seen = append(seen, s)
		if r := at(s); !slices.Contains(rows, r) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return (a.stage-b.stage)*1000 + a.lane - b.lane })
	for _, r := range rows {
		name := stageOrder[max(r.stage, 0)]
		if r.lane > 0 {
			name = fmt.Sprintf("%s %d", name, r.lane+1)
		}
		t.rows = append(t.rows, name)
	}
	for _, s := range seen {
		t.bars = append(t.bars, timelineBar{
			row:   slices.Index(rows, at(s)),
			begin: max(0, milliseconds(s.Begin-from)), end: min(t.width, milliseconds(s.Begin+s.Wall-from)), batch: s.Name,
		})
	}
	return t
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// epochOf returns "e3" of "train/e3/b17".
func epochOf(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// batchOf returns "17" of "train/e3/b17", and "17.2" of "train/e3/b17/m2".
func batchOf(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) < 3 {
		return ""
	}
	b := strings.TrimPrefix(parts[2], "b")
	if len(parts) > 3 {
		b += "." + strings.TrimPrefix(parts[3], "m")
	}
	return b
}

// height is what the rows need, axis and title included.
func (t *timeline) height() vg.Length {
	return vg.Length(len(t.rows))*vg.Centimeter*0.62 + 2*vg.Centimeter
}

// draw draws the time line on dc.
func (t *timeline) draw(dc draw.Canvas) {
	p := newPlot(fmt.Sprintf("%s to %s: a colour and a number for each batch", t.first, t.last))
	p.X.Label.Text = "ms"
	p.X.Min, p.X.Max = 0, t.width
	p.Y.Min, p.Y.Max = -0.5, float64(len(t.rows))-0.5
	p.X.Tick.Marker = roundTicks{}
	var ticks plot.ConstantTicks
	for i, name := range t.rows {
		ticks = append(ticks, plot.Tick{Value: t.y(i), Label: name})
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length = 0
	p.Y.LineStyle.Width = 0
	p.Add(t)
	dc = draw.Crop(dc, 6, -10, 4, -6)
	fitTitle(p, dc.Max.X-dc.Min.X)
	p.Draw(dc)
}

// y is where row i lies: the first one on top.
func (t *timeline) y(i int) float64 { return float64(len(t.rows) - 1 - i) }

// Plot implements plot.Plotter.
func (t *timeline) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := text.Style{Color: color.White, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, 7), XAlign: draw.XCenter, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
	numbers := map[string]int{}
	for _, b := range slices.SortedFunc(slices.Values(t.bars), func(a, b timelineBar) int { return cmp.Compare(a.begin, b.begin) }) {
		if _, ok := numbers[b.batch]; !ok && batchOf(b.batch) != "" {
			numbers[b.batch] = len(numbers)
		}
	}
	for _, b := range t.bars {
		x0, x1 := x(b.begin), x(b.end)
		if x1-x0 < 0.6 { // still to be seen
			x1 = x0 + 0.6
		}
		half := 0.36
		y0, y1 := y(t.y(b.row)-half), y(t.y(b.row)+half)
		var fill color.Color = color.Gray{Y: 0x90}
		if n, ok := numbers[b.batch]; ok {
			fill = batchColors[n%len(batchColors)]
		}
		c.FillPolygon(fill, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
		if label := batchOf(b.batch); label != "" && style.Width(label)+3 < x1-x0 {
			c.FillText(style, vg.Point{X: (x0 + x1) / 2, Y: (y0 + y1) / 2}, label)
		}
	}
}

// batchColors follow each other in time; neighbours are easy to tell apart.
var batchColors = []color.Color{
	color.RGBA{R: 0x1b, G: 0x6c, B: 0xa8, A: 0xff},
	color.RGBA{R: 0xc0, G: 0x5a, B: 0x05, A: 0xff},
	color.RGBA{R: 0x2e, G: 0x8b, B: 0x57, A: 0xff},
	color.RGBA{R: 0x8e, G: 0x44, B: 0xad, A: 0xff},
	color.RGBA{R: 0xb0, G: 0x2a, B: 0x37, A: 0xff},
	color.RGBA{R: 0x3c, G: 0x4a, B: 0x5a, A: 0xff},
}
