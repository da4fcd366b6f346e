package graph

import (
	"context"
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// NormalizeRow divides x by the sum of its absolute values, in place. The sum
// is taken in float64 in column order, each quotient is rounded to float32
// once. A row of zeros stays as it is.
func NormalizeRow(x []float32) {
	sum := 0.0
	for _, v := range x {
		sum += math.Abs(float64(v))
	}
	if sum == 0 {
		return
	}
	for j, v := range x {
		x[j] = float32(float64(v) / sum)
	}
}

// Normalized returns a float32 copy of f with each row divided by the sum of
// its absolute values; rows of zeros stay zero. It is what
// the importer's option NormalizeFeatures stores, bit for bit. When ctx ends first, the
// error wraps its cause.
func (f *Features) Normalized(ctx context.Context) (*Features, error) {
	x, stop := make([]float32, f.Rows*f.Cols), interrupt.New(ctx)
	for i := range f.Rows {
		if stop.Ended() {
			break
		}
		row := x[i*f.Cols : (i+1)*f.Cols]
		f.Row(row, i)
		NormalizeRow(row)
	}
	if err := stop.Err(); err != nil {
		return nil, fmt.Errorf("graph: interrupted while features were normalized: %w", err)
	}
	return NewFeatures(f.Rows, f.Cols, x), nil
}
