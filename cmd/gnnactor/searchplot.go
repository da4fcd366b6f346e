package main

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Plots of a search: how many stand beside each other, and what one takes.
const (
	searchColumns                 = 3
	searchWidth, searchHeight     = 27 * vg.Centimeter, 6.5 * vg.Centimeter
	searchLegend, searchLegendGap = 18, 110 // points
)

// searchKinds tell trials apart; the best is drawn last.
var searchKinds = []struct {
	name   string
	color  color.Color
	radius vg.Length
}{
	{"trained for less", color.Gray{Y: 0xb0}, 2.5},
	{"trained to the end", color.RGBA{R: 0x1b, G: 0x6c, B: 0xa8, A: 0xff}, 2.5},
	{"the best", color.RGBA{R: 0xd9, G: 0x6b, B: 0x0b, A: 0xff}, 4},
}

// kindOf is which of searchKinds a trial is of; ranked has the best first.
func kindOf(t *trial, ranked []*trial) int {
	switch {
	case t == ranked[0]:
		return 2
	case len(t.Rungs) == len(ranked[0].Rungs):
		return 1
	}
	return 0
}

// draw draws the figure over each setting, after how it came with trials or, where there are several rungs, epochs.
func (c *searchCommand) draw(name string, ranked []*trial) error {
	list := []*plot.Plot{c.coursePlot(ranked)}
	for i := range c.space {
		list = append(list, c.settingPlot(&c.space[i], ranked))
	}
	columns := min(searchColumns, len(list))
	for len(list)%columns != 0 {
		list = append(list, nil)
	}
	plots := slices.Collect(slices.Chunk(list, columns))
	width, height := searchWidth*vg.Length(columns)/searchColumns, searchHeight*vg.Length(len(plots))+searchLegend
	return drawPlots(name, plots, width, height, searchLegend, func(dc draw.Canvas) {
		style := draw.TextStyle{Color: color.Black, Font: font.From(plotFont, 9), Handler: plot.DefaultTextHandler, YAlign: draw.YCenter}
		x, y := dc.Min.X+14, dc.Center().Y
		for i, kind := range searchKinds {
			if i == 0 && len(ranked[0].Rungs) < 2 {
				continue
			}
			dc.DrawGlyph(draw.GlyphStyle{Color: kind.color, Radius: kind.radius, Shape: draw.CircleGlyph{}}, vg.Point{X: x, Y: y})
			dc.FillText(style, vg.Point{X: x + 8, Y: y}, kind.name)
			x += searchLegendGap
		}
	})
}

// points adds those of trials, the best above the others.
func (c *searchCommand) points(p *plot.Plot, ranked []*trial, x func(*trial) (float64, bool)) {
	for k, kind := range searchKinds {
		var points plotter.XYs
		for _, t := range ranked {
			if at, ok := x(t); ok && kindOf(t, ranked) == k && t.failed() == "" && !math.IsNaN(t.valid()) {
				points = append(points, plotter.XY{X: at, Y: t.valid()})
			}
		}
		if points == nil {
			continue
		}
		dots, err := plotter.NewScatter(points)
		if err != nil {
			panic(fmt.Sprintf("gnnactor: trials: %v", err)) // points are finite and not empty
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: kind.color, Radius: kind.radius, Shape: draw.CircleGlyph{}}
		p.Add(dots)
	}
	spread(&p.Y)
	spread(&p.X)
}

// spread makes room around the points of an axis.
func spread(a *plot.Axis) {
	if !(a.Min <= a.Max) { // there are none
		a.Min, a.Max = 0, 1
	}
	room := 0.05 * (a.Max - a.Min)
	if room == 0 {
		room = max(0.05*math.Abs(a.Max), 1e-9)
	}
	a.Min, a.Max = a.Min-room, a.Max+room
}

func (c *searchCommand) coursePlot(ranked []*trial) *plot.Plot {
	if len(ranked[0].Rungs) < 2 {
		p := newPlot("valid " + c.figure.name() + " by trial")
		p.X.Label.Text = "trial"
		c.points(p, ranked, func(t *trial) (float64, bool) { return float64(t.Trial), true })
		return p
	}
	p := newPlot("valid " + c.figure.name() + " by epoch")
	for _, t := range slices.Backward(ranked) {
		var points plotter.XYs
		for _, r := range t.Rungs {
			if r.Valid != nil {
				points = append(points, plotter.XY{X: float64(r.Epochs), Y: *r.Valid})
			}
		}
		addLine(p, "", points, searchKinds[kindOf(t, ranked)].color)
	}
	c.points(p, ranked, func(t *trial) (float64, bool) {
		if t.Rungs == nil {
			return 0, false
		}
		return float64(t.Rungs[len(t.Rungs)-1].Epochs), true
	})
	return p
}

// settingPlot shows the figure over a setting: of a list its values, one beside the other, of a range the number.
func (c *searchCommand) settingPlot(r *searchRange, ranked []*trial) *plot.Plot {
	p := newPlot("valid " + c.figure.name() + " by " + r.name)
	p.X.Label.Text = r.name
	if r.values != nil {
		var ticks plot.ConstantTicks
		for i, v := range r.values {
			if room := 28 / len(r.values); len([]rune(v)) > max(room, 3) {
				v = string([]rune(v)[:max(room, 3)-1]) + "…"
			}
			ticks = append(ticks, plot.Tick{Value: float64(i), Label: v})
		}
		c.points(p, ranked, func(t *trial) (float64, bool) { return float64(slices.Index(r.values, t.Settings[r.name])), true })
		p.X.Min, p.X.Max, p.X.Tick.Marker = -0.5, float64(len(r.values))-0.5, ticks
		return p
	}
	c.points(p, ranked, func(t *trial) (float64, bool) {
		x, err := strconv.ParseFloat(t.Settings[r.name], 64)
		return x, err == nil
	})
	p.X.Min, p.X.Max, p.X.Tick.Marker = r.from, r.to, roundTicks{}
	if r.log {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{}
		p.X.Min, p.X.Max = r.from/1.1, r.to*1.1
	} else {
		spread(&p.X)
	}
	return p
}
