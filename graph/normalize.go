package graph

import "math"

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
// the importer's option NormalizeFeatures stores, bit for bit.
func (f *Features) Normalized() *Features {
	x := make([]float32, f.Rows*f.Cols)
	for i := range f.Rows {
		row := x[i*f.Cols : (i+1)*f.Cols]
		f.Row(row, i)
		NormalizeRow(row)
	}
	return NewFeatures(f.Rows, f.Cols, x)
}
