package main

import (
	"bytes"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// widerFonts is by how much the fonts that programs take in the place of ours are wider, DejaVu Sans the most.
const widerFonts = 1.2

// fitTitle makes p's title small enough for a width.
func fitTitle(p *plot.Plot, width vg.Length) {
	style := &p.Title.TextStyle
	if full := widerFonts * style.Width(p.Title.Text); full > width {
		style.Font.Size *= width / full
	}
}

// drawPlots draws a grid of plots, where nil is an empty place, into the file name, whose ending chooses SVG
// or PNG. below, if not nil, draws into a strip of the given height under the
// grid.
func drawPlots(name string, plots [][]*plot.Plot, width, height, strip vg.Length, below func(draw.Canvas)) error {
	return atomicfile.Write(name, 0o644, func(w io.Writer) error {
		fill := func(size vg.CanvasSizer) {
			dc := draw.New(size)
			dc.SetColor(color.White) // readable on a dark page, too
			dc.Fill(dc.Rectangle.Path())
			grid := draw.Crop(dc, 0, 0, strip, 0)
			tiles := draw.Tiles{
				Rows: len(plots), Cols: len(plots[0]), PadX: vg.Centimeter / 2, PadY: vg.Centimeter / 3,
				PadTop: 6, PadBottom: 4, PadLeft: 6, PadRight: 10,
			}
			for i, row := range plot.Align(plots, tiles, grid) {
				for j, tile := range row {
					if plots[i][j] != nil {
						fitTitle(plots[i][j], tile.Max.X-tile.Min.X)
						plots[i][j].Draw(tile)
					}
				}
			}
			if below != nil {
				below(draw.Crop(dc, 0, 0, 0, strip-height))
			}
		}
		if plotFormat(name) == ".png" {
			c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144))
			fill(c)
			_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(w)
			return err
		}
		c := vgsvg.New(width, height)
		fill(c)
		var text bytes.Buffer
		if _, err := c.WriteTo(&text); err != nil {
			return err
		}
		// The font that lengths were computed with is not on every machine.
		_, err := w.Write(bytes.ReplaceAll(text.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,sans-serif")))
		return err
	})
}
