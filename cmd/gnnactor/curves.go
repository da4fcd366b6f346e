package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/gnnactor/gnnactor/internal/atomicfile"
	"github.com/gnnactor/gnnactor/runtime"
)

// curves collects what a training run reports per epoch, for --plot.
type curves struct {
	epochs                   []runtime.Event
	loss, train, valid, test plotter.XYs
	begun                    bool // the run has parameters of its own: it went on from a checkpoint, or made a step
	figure                   splitFigure
}

// event takes the figures of ev that were measured.
func (c *curves) event(ev runtime.Event) {
	if ev.Kind != runtime.EventEpoch {
		return
	}
	add := func(to *plotter.XYs, y float64) {
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			*to = append(*to, plotter.XY{X: float64(ev.Epoch + 1), Y: y})
		}
	}
	c.epochs = append(c.epochs, ev)
	add(&c.loss, ev.Loss)
	add(&c.train, ev.TrainAccuracy)
	add(&c.valid, ev.ValidAccuracy)
	add(&c.test, ev.TestAccuracy)
}

const curvesWidth, curvesHeight = 18 * vg.Centimeter, 7 * vg.Centimeter

// checkPlot refuses, before any work is done, a file whose ending is none of what --plot makes.
func checkPlot(name string, endings ...string) error {
	if name == "" {
		return nil
	}
	if !slices.Contains(endings, plotFormat(name)) {
		return usagef("--plot %s: the name must end in %s", name, strings.Join(endings, " or "))
	}
	return checkReplaceable("--plot", name)
}

func plotFormat(name string) string { return strings.ToLower(filepath.Ext(name)) }

// save draws loss and accuracies over epochs side by side into name, whose
// ending chooses SVG or PNG, and under them what the stages did, if t is not nil; or, as
// CSV, a line for each epoch.
func (c *curves) save(name string, t *timeline) error {
	if plotFormat(name) == ".csv" {
		return atomicfile.Write(name, 0o644, c.table)
	}
	plots := [][]*plot.Plot{{c.lossPlot(), c.accuracyPlot()}}
	if t == nil {
		return drawPlots(name, plots, curvesWidth, curvesHeight, 0, nil)
	}
	return drawPlots(name, plots, curvesWidth, curvesHeight+t.height(), t.height(), t.draw)
}

// table writes a line for each epoch: steps so far, the time since training began, evaluations
// included, that the stages were busy, and the figures. What was not measured is empty.
func (c *curves) table(w io.Writer) error {
	t, metric := csv.NewWriter(w), strings.ToLower(c.figure.name())
	line := []string{"epoch", "steps", "seconds"}
	for _, name := range stageOrder {
		line = append(line, name+"_seconds")
	}
	err := t.Write(append(line, "loss", "train_accuracy", "valid_"+metric, "test_"+metric))
	for _, ev := range c.epochs {
		line = append(line[:0], strconv.Itoa(ev.Epoch+1), strconv.FormatInt(ev.Applied, 10))
		add := func(x float64) {
			cell := ""
			if !math.IsNaN(x) {
				cell = strconv.FormatFloat(x, 'g', 9, 64)
			}
			line = append(line, cell)
		}
		add(ev.Wall.Seconds())
		for _, name := range stageOrder {
			add(ev.Stages[name].Seconds())
		}
		for _, x := range []float64{ev.Loss, ev.TrainAccuracy, ev.ValidAccuracy, ev.TestAccuracy} {
			add(x)
		}
		err = errors.Join(err, t.Write(line))
	}
	t.Flush()
	return errors.Join(err, t.Error())
}

func (c *curves) lossPlot() *plot.Plot {
	p := newPlot("loss")
	p.Y.Min = 0
	addLine(p, "", c.loss, color.RGBA{R: 0x33, G: 0x33, B: 0x33, A: 0xff})
	return p
}

func (c *curves) accuracyPlot() *plot.Plot {
	if c.figure == aucFigure { // train is of the batches' pairs, and right or wrong
		c.train = nil
	}
	p := newPlot(c.figure.name())
	addLine(p, "train", c.train, color.RGBA{R: 0x1b, G: 0x6c, B: 0xa8, A: 0xff})
	addLine(p, "valid", c.valid, color.RGBA{R: 0xd9, G: 0x6b, B: 0x0b, A: 0xff})
	addLine(p, "test", c.test, color.RGBA{R: 0x2e, G: 0x8b, B: 0x57, A: 0xff})
	if p.Y.Min == p.Y.Max { // one epoch, and no spread to show: gonum would draw beyond what there can be
		if p.Y.Min, p.Y.Max = 0, 1; c.figure == rmseFigure {
			p.Y.Max = math.Inf(-1)
			for _, points := range []plotter.XYs{c.valid, c.test} {
				for _, at := range points {
					p.Y.Max = max(p.Y.Max, 1.1*at.Y, 1e-9)
				}
			}
			if math.IsInf(p.Y.Max, -1) {
				p.Y.Max = 1
			}
		}
	}
	p.Legend.YPosition = draw.PosBottom
	placeLegend(p, c.train, c.valid, c.test)
	return p
}

// What a legend of three lines takes of the plot, with a margin: shares of its sides.
const legendWidth, legendHeight = 0.25, 0.35

// placeLegend puts p's legend into a corner that no line passes through, or below them all.
func placeLegend(p *plot.Plot, lines ...plotter.XYs) {
	for _, corner := range []struct{ top, left bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		if p.Legend.Top, p.Legend.Left = corner.top, corner.left; !legendCovers(p, lines...) {
			return
		}
	}
	p.Legend.Top, p.Legend.Left = false, false
	const below = legendHeight + 0.02
	p.Y.Min -= below / (1 - below) * (p.Y.Max - p.Y.Min)
}

// legendCovers reports whether a line passes through the corner of p's legend.
func legendCovers(p *plot.Plot, lines ...plotter.XYs) bool {
	const steps = 64 // of a line between two points
	for _, line := range lines {
		for i := range line {
			from, to := line[i], line[min(i+1, len(line)-1)]
			for k := range steps + 1 {
				part := float64(k) / steps
				x := p.X.Norm(from.X + part*(to.X-from.X))
				y := p.Y.Norm(from.Y + part*(to.Y-from.Y))
				if !p.Legend.Left {
					x = 1 - x
				}
				if p.Legend.Top {
					y = 1 - y
				}
				if x < legendWidth && y < legendHeight {
					return true
				}
			}
		}
	}
	return false
}

var plotFont = font.Font{Typeface: "Liberation", Variant: "Sans"}

// newPlot returns an empty plot over epochs.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "epoch"
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font = font.From(plotFont, 9)
	}
	p.Title.TextStyle.Font.Size = 11
	p.Title.Padding = 4
	p.Legend.Padding = 2
	p.X.Tick.Marker, p.Y.Tick.Marker = wholeTicks{}, roundTicks{}
	grid := plotter.NewGrid()
	grid.Horizontal.Color = color.Gray{Y: 0xdd}
	grid.Vertical.Width = 0
	p.Add(grid)
	return p
}

// addLine draws points as a line; a lone point as a dot, since a line of one
// point cannot be seen.
func addLine(p *plot.Plot, name string, points plotter.XYs, c color.Color) {
	if len(points) == 0 {
		return
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		panic(fmt.Sprintf("gnnactor: curve %q: %v", name, err)) // points are finite and not empty
	}
	line.Color, line.Width = c, vg.Points(1.5)
	dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, vg.Points(2)
	p.Add(line)
	if len(points) == 1 {
		p.Add(dots)
	}
	if name != "" {
		p.Legend.Add(name+"  ", line) // room for wider fonts, which run into the line
	}
}

// wholeTicks marks whole numbers only: there is no epoch 1.5.
type wholeTicks struct{}

// Ticks implements plot.Ticker.
func (wholeTicks) Ticks(low, high float64) []plot.Tick {
	step := 1.0
	for i := 1; (high-low)/step > 8; i++ { // 1, 2, 5, 10, 20, …
		step = []float64{1, 2, 5}[i%3] * math.Pow10(i/3)
	}
	var ticks []plot.Tick
	for x := math.Ceil(low/step) * step; x <= high; x += step {
		ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprint(int64(x))})
	}
	return ticks
}

// roundTicks marks multiples of 1, 2 or 5 times a power of ten, three to nine of them, each written with as many places as
// it takes to tell it from the next.
type roundTicks struct{}

// Ticks implements plot.Ticker.
func (roundTicks) Ticks(low, high float64) []plot.Tick {
	if !(high > low) || math.IsInf(high-low, 0) {
		return []plot.Tick{{Value: low, Label: strconv.FormatFloat(low, 'g', 6, 64)}}
	}
	const most = 8 // with steps at most 2.5 times as far apart, three at least
	e := int(math.Floor(math.Log10((high - low) / most)))
	step, m := 0.0, 1
	for _, m = range []int{1, 2, 5, 10} {
		if step = float64(m) * math.Pow10(e); (high-low)/step <= most {
			break
		}
	}
	if m == 10 {
		e++
	}
	var ticks []plot.Tick
	for k := math.Ceil(low/step - 1e-9); k*step <= high+1e-9*step; k++ {
		ticks = append(ticks, plot.Tick{Value: k * step, Label: roundLabel(k*step, e, max(math.Abs(low), math.Abs(high)))})
	}
	return ticks
}

// roundLabel writes a multiple of 10^e, on an axis of numbers up to most.
func roundLabel(x float64, e int, most float64) string {
	switch {
	case x == 0:
		return "0"
	case most >= 1e7 || most < 1e-4:
		return strconv.FormatFloat(x, 'g', 4, 64)
	case e >= 0:
		return formatCount(int64(math.Round(x)))
	}
	return strconv.FormatFloat(x, 'f', -e, 64)
}
