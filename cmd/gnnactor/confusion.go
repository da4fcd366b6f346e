package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"image/color"
	"io"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/gnnactor/gnnactor/internal/atomicfile"
	"github.com/gnnactor/gnnactor/runtime"
)

// confusionFlags say how it is shown which class was predicted of which.
type confusionFlags struct {
	table bool
	plot  string
}

func (f *confusionFlags) asked() bool  { return f.table || f.plot != "" }
func (f *confusionFlags) check() error { return checkPlot(f.plot, ".svg", ".png", ".csv") }

// confusion counts, of the test nodes' classes, which were predicted: a row for each class.
type confusion struct {
	Classes []string `json:"classes"`
	Counts  [][]int  `json:"counts"`
}

// confusion returns that of the test nodes, or of all where there are no splits, and draws it where that is asked for.
func (a *app) confusion(ctx context.Context, rt *runtime.Runtime, f *confusionFlags) (*confusion, error) {
	if rt.Regression() || rt.NumLinks(runtime.TrainLinks) > 0 {
		return nil, usagef("--confusion and --plot are of classes, and the model predicts something else; leave them out")
	}
	splits, _ := splitsOf(rt.Dataset())
	counts, err := rt.Confusion(ctx, splits[len(splits)-1])
	if err != nil {
		return nil, err
	}
	recipe, err := calledIn(rt.Dataset()).recipe()
	if err != nil {
		return nil, err
	}
	c := &confusion{Counts: counts}
	for i := range counts {
		c.Classes = append(c.Classes, recipe.ClassName(i))
	}
	if f.plot != "" {
		if err := c.save(f.plot); err != nil {
			return nil, fmt.Errorf("--plot: %w", err)
		}
		a.logf("confusion drawn to %s", f.plot)
	}
	return c, nil
}

// text is a table with a column for each class.
func (c *confusion) text() *table {
	t := new(table)
	head := []string{"class \\ predicted"}
	for _, name := range c.Classes {
		head = append(head, shortened(name))
	}
	t.row(head...)
	for i, row := range c.Counts {
		line := []string{shortened(c.Classes[i])}
		for _, n := range row {
			line = append(line, formatCount(n))
		}
		t.row(line...)
	}
	return t
}

func (c *confusion) save(name string) error {
	if plotFormat(name) == ".csv" {
		return atomicfile.Write(name, 0o644, func(w io.Writer) error {
			t := csv.NewWriter(w)
			err := t.Write(append([]string{"class"}, c.Classes...))
			for i, row := range c.Counts {
				line := []string{c.Classes[i]}
				for _, n := range row {
					line = append(line, strconv.Itoa(n))
				}
				if err == nil {
					err = t.Write(line)
				}
			}
			if t.Flush(); err == nil {
				err = t.Error()
			}
			return err
		})
	}
	p := newPlot("nodes of each class, by the class predicted")
	p.X.Label.Text, p.Y.Label.Text = "predicted", "class"
	p.X.Tick.Marker, p.Y.Tick.Marker = c.ticks(1), c.ticks(-1)
	longest := 0
	for _, name := range c.Classes {
		longest = max(longest, len([]rune(shortened(name))))
	}
	if longest > 3 {
		p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = 1.2, draw.XRight, draw.YCenter
	}
	n := float64(len(c.Classes))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, n-0.5, 0.5-n, 0.5
	p.Add(c)
	side := max(9*vg.Centimeter, vg.Length(n)*0.7*vg.Centimeter) + 3*vg.Centimeter
	return drawPlots(name, [][]*plot.Plot{{p}}, side, side, 0, nil)
}

// ticks has the classes at 0, 1, … in a direction.
func (c *confusion) ticks(direction float64) plot.ConstantTicks {
	var list []plot.Tick
	for i, name := range c.Classes {
		list = append(list, plot.Tick{Value: direction * float64(i), Label: shortened(name)})
	}
	return list
}

// Plot implements plot.Plotter: a cell for each pair of classes, the darker the more of the class's nodes are in it.
func (c *confusion) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	for i, row := range c.Counts {
		all := 0
		for _, n := range row {
			all += n
		}
		for j, n := range row {
			share := float64(n) / float64(max(all, 1))
			mix := func(full float64) uint8 { return uint8(255 - share*(255-full)) }
			left, right, low, high := x(float64(j)-0.5), x(float64(j)+0.5), y(-float64(i)-0.5), y(-float64(i)+0.5)
			canvas.FillPolygon(color.RGBA{mix(0x1b), mix(0x6c), mix(0xa8), 0xff}, []vg.Point{{X: left, Y: low}, {X: right, Y: low}, {X: right, Y: high}, {X: left, Y: high}})
			if n == 0 {
				continue
			}
			style := text.Style{Color: color.Black, Font: font.From(plotFont, 7), XAlign: draw.XCenter, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
			if share > 0.5 {
				style.Color = color.White
			}
			canvas.FillText(style, vg.Point{X: (left + right) / 2, Y: (low + high) / 2}, strconv.Itoa(n))
		}
	}
}
