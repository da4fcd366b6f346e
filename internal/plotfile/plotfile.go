// Package plotfile writes a plot to a file.
package plotfile

import (
	"image/color"
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// margin is around a plot, which gonum draws up to the edges, where programs that have wider fonts than it computed with cut its labels.
const margin = vg.Centimeter / 3

// Save writes p to the file name, as its ending says: .svg, .png, .pdf.
func Save(p *plot.Plot, width, height vg.Length, name string) error {
	canvas, err := draw.NewFormattedCanvas(width, height, strings.TrimPrefix(filepath.Ext(name), "."))
	if err != nil {
		return err
	}
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	p.Draw(draw.Crop(all, margin, -margin, margin, -margin))
	return atomicfile.Write(name, 0o644, func(w io.Writer) error {
		_, err := canvas.WriteTo(w)
		return err
	})
}
