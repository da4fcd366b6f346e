package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	statsWidth, statsHeight = 36 * vg.Centimeter, 15 * vg.Centimeter
	legendRow               = 14 // points
	legendColumn            = 84
)

// samplerColors tell samplers apart; there are as many as samplers.
var samplerColors = []color.RGBA{
	{0x1b, 0x6c, 0xa8, 0xff}, {0xd9, 0x6b, 0x0b, 0xff}, {0x2e, 0x8b, 0x57, 0xff}, {0xb0, 0x2a, 0x3a, 0xff}, {0x7b, 0x4f, 0xa6, 0xff},
	{0x8c, 0x56, 0x4b, 0xff}, {0xd6, 0x5f, 0xa8, 0xff}, {0x5f, 0x6a, 0x72, 0xff}, {0xa8, 0xa0, 0x10, 0xff}, {0x12, 0xa5, 0xb5, 0xff},
	{0x00, 0x3f, 0x5c, 0xff}, {0xf0, 0xa0, 0x70, 0xff}, {0x66, 0xc2, 0x7a, 0xff}, {0x9a, 0x9a, 0xf0, 0xff},
}

var graphColor = color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff}

// drawStats draws the samplers' statistics into a file, and the legend below.
func drawStats(name string, all []*samplerStats, graph []int64) error {
	plots := [][]*plot.Plot{
		{
			degreePlot("share of rows with d entries or more", all, graph, func(s *samplerStats) []int64 { return s.stats.Degrees }),
			degreePlot("share of input nodes of degree d or more", all, graph, func(s *samplerStats) []int64 { return s.stats.InputDegrees }),
			layerPlot("distinct nodes of a batch", all, func(s *samplerStats) int64 { return s.stats.Layers[0].Destinations }, func(l *layerStats) float64 { return l.Nodes }),
			layerPlot("edges of a batch", all, nil, func(l *layerStats) float64 { return l.Edges }),
		},
		{
			errorPlot(all),
			barPlot("match degree of consecutive batches", all, func(s *samplerStats) float64 { return float64(s.MatchDegree) }),
			barPlot("isolated rows, share", all, func(s *samplerStats) float64 { return s.IsolatedShare }),
			barPlot("million edges sampled a second", all, func(s *samplerStats) float64 { return s.EdgesPerSecond / 1e6 }),
		},
	}
	perRow := int(statsWidth.Points()-20) / legendColumn
	rows := (len(all) + perRow) / perRow // the graph has an entry, too
	strip := vg.Length(rows*legendRow + 6)
	return drawPlots(name, plots, statsWidth, statsHeight, strip, func(c draw.Canvas) {
		style := draw.TextStyle{Color: color.Black, Font: font.From(plotFont, 9), YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
		for i := range len(all) + 1 {
			x := c.Min.X + 12 + vg.Length(i%perRow*legendColumn)
			y := c.Max.Y - vg.Length(i/perRow*legendRow) - legendRow/2
			label, fill := "graph", color.Color(graphColor)
			if i > 0 {
				label, fill = all[i-1].Name, samplerColors[(i-1)%len(samplerColors)]
			}
			c.FillPolygon(fill, []vg.Point{{X: x, Y: y - 3}, {X: x + 12, Y: y - 3}, {X: x + 12, Y: y + 3}, {X: x, Y: y + 3}})
			c.FillText(style, vg.Point{X: x + 16, Y: y}, label)
		}
	})
}

// degreePlot shows, on logarithmic axes, which share of a distribution is at
// least d.
func degreePlot(title string, all []*samplerStats, graph []int64, of func(*samplerStats) []int64) *plot.Plot {
	p := newPlot(title)
	p.X.Label.Text = "d"
	lowest := 1.0
	add := func(count []int64, c color.Color) {
		points := tail(count)
		if len(points) == 0 {
			return
		}
		lowest = min(lowest, points[len(points)-1].Y)
		addLine(p, "", points, c)
	}
	add(graph, graphColor)
	for i, s := range all {
		add(of(s), samplerColors[i%len(samplerColors)])
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = decades{}, decades{}
	p.X.Min, p.Y.Max = 1, 1
	p.X.Max = math.Max(p.X.Max, 10)
	p.Y.Min = math.Min(math.Pow10(int(math.Floor(math.Log10(lowest)))), 0.1)
	return p
}

// tail returns the share of a distribution at or above d, at its degrees from 1
// on, thinned to about forty a decade.
func tail(count []int64) plotter.XYs {
	total := int64(0)
	for _, c := range count {
		total += c
	}
	var points plotter.XYs
	above, last := total, 0.0
	for d, c := range count {
		if d > 0 && c > 0 && (float64(d) >= last*1.06 || above == c) {
			points = append(points, plotter.XY{X: float64(d), Y: float64(above) / float64(total)})
			last = float64(d)
		}
		above -= c
	}
	return points
}

// layerPlot shows a count from the seeds outward, on a logarithmic axis; that of
// the seeds, unless it is nil, is the sum over batches.
func layerPlot(title string, all []*samplerStats, seeds func(*samplerStats) int64, of func(*layerStats) float64) *plot.Plot {
	p := newPlot(title)
	p.X.Label.Text = "layers from the seeds"
	most, least := 10.0, math.Inf(1)
	for i, s := range all {
		if len(s.stats.Layers) == 0 || s.stats.Batches == 0 {
			continue
		}
		var points plotter.XYs
		if seeds != nil {
			points = append(points, plotter.XY{X: 0, Y: math.Max(1, float64(seeds(s))/float64(s.stats.Batches))})
		}
		for j := range s.Layers {
			points = append(points, plotter.XY{X: float64(j + 1), Y: math.Max(1, of(&s.Layers[j]))})
		}
		for _, x := range points {
			most, least = math.Max(most, x.Y), math.Min(least, x.Y)
		}
		addLine(p, "", points, samplerColors[i%len(samplerColors)])
	}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	p.Y.Min, p.Y.Max = math.Pow10(int(math.Floor(math.Log10(math.Min(least, most))))), math.Pow10(int(math.Ceil(math.Log10(most))))
	return p
}

// errorPlot shows, on logarithmic axes, what precision costs in nodes: a point
// for each sampler. Those without error lie on the bottom edge.
func errorPlot(all []*samplerStats) *plot.Plot {
	p := newPlot("squared error of aggregation")
	p.X.Label.Text = "input nodes"
	least, most := math.Inf(1), 0.0
	for _, s := range all {
		if x := float64(s.SquaredError); x > 0 && !math.IsInf(x, 0) {
			least, most = math.Min(least, x), math.Max(most, x)
		}
	}
	if most == 0 {
		least, most = 0.1, 1
	}
	p.Y.Min, p.Y.Max = least/3, most*2
	for i, s := range all {
		x, y := s.MeanInputNodes, float64(s.SquaredError)
		if math.IsNaN(y) || math.IsInf(y, 0) || x < 1 {
			continue
		}
		dot, err := plotter.NewScatter(plotter.XYs{{X: x, Y: math.Max(y, p.Y.Min)}})
		if err != nil {
			panic(fmt.Sprintf("gnnactor: point of %s: %v", s.Name, err)) // it is finite
		}
		dot.GlyphStyle = draw.GlyphStyle{Color: samplerColors[i%len(samplerColors)], Radius: 4, Shape: draw.CircleGlyph{}}
		p.Add(dot)
	}
	if !(p.X.Min >= 1 && p.X.Max >= p.X.Min) {
		p.X.Min, p.X.Max = 1, 10
	}
	p.X.Min, p.X.Max = p.X.Min/1.5, p.X.Max*1.5
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = decades{}, decades{}
	return p
}

// barPlot shows a share of each sampler as a bar.
func barPlot(title string, all []*samplerStats, of func(*samplerStats) float64) *plot.Plot {
	p := newPlot(title)
	for i, s := range all {
		x := of(s)
		if math.IsNaN(x) {
			continue
		}
		bar, err := plotter.NewBarChart(plotter.Values{x}, vg.Points(math.Min(28, 120/float64(len(all)))))
		if err != nil {
			panic(fmt.Sprintf("gnnactor: bar of %s: %v", s.Name, err)) // it is finite
		}
		bar.XMin = float64(i)
		bar.Color, bar.LineStyle.Width = samplerColors[i%len(samplerColors)], 0
		p.Add(bar)
	}
	p.X.Label.Text = ""
	p.HideX() // the legend names the colours
	p.X.Min, p.X.Max = -0.6, float64(len(all))-0.4
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.08
	if p.Y.Max <= 0 || math.IsInf(p.Y.Max, 0) {
		p.Y.Max = 1
	}
	return p
}

// decades marks the powers of ten, and their multiples with short ticks.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	first, last := int(math.Floor(math.Log10(low))), int(math.Ceil(math.Log10(high)))
	step := 1 + (last-first)/7 // at most eight decades
	within := last-first <= 2  // then twos and fives, too
	for e := first; e <= last; e++ {
		for m := 1; m < 10; m++ {
			x := float64(m) * math.Pow10(e)
			if x < low*(1-1e-9) || x > high*(1+1e-9) {
				continue
			}
			tick := plot.Tick{Value: x}
			if m == 1 && (e-first)%step == 0 || within && (m == 2 || m == 5) {
				tick.Label = fmt.Sprint(x)
				switch {
				case e > 5 || e < -3:
					tick.Label = fmt.Sprintf("%de%d", m, e)
				case e >= 0:
					tick.Label = formatCount(int64(x))
				}
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}
