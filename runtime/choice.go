package runtime

import (
	"cmp"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
)

// Choice says which classes of a node are predicted. The zero value: where nodes have one, the most probable; where they have
// several labels, those that are more probable than not.
type Choice struct {
	Top       int     // at most so many; 0: any number, or 1 where nodes have one class and there is no Threshold
	Threshold float64 // that are at least so probable; 0: any, or 0.5 where nodes have several labels and there is no Top
}

// MultiLabel reports whether nodes have several labels each, of which each has a probability of its own, or one class.
func (r *Runtime) MultiLabel() bool { return r.cfg.multi }

// MultiLabel is Runtime.MultiLabel.
func (d *Divided) MultiLabel() bool { return d.cfg.multi }

// Probabilities returns what e, a model's output, says of each class: its probability, or with multi that of each label by itself.
func (e *Embedding) Probabilities(multi bool) *Embedding {
	p := &Embedding{Rows: e.Rows, Cols: e.Cols, Data: make([]float32, len(e.Data))}
	for i := range e.Rows {
		row := e.Data[i*e.Cols : (i+1)*e.Cols]
		of := compute.Probability(row, multi)
		for j := range row {
			p.Data[i*e.Cols+j] = of(j)
		}
	}
	return p
}

// Predictions returns the classes of each row of e, a model's output, that c chooses: the most probable first, ties to the lower class.
func (e *Embedding) Predictions(multi bool, c Choice) [][]Prediction {
	switch {
	case c.Top > 0 || c.Threshold > 0:
	case multi:
		c.Threshold = 0.5
	default:
		c.Top = 1
	}
	all, order := make([][]Prediction, e.Rows), make([]int, e.Cols)
	for i := range all {
		row := e.Data[i*e.Cols : (i+1)*e.Cols]
		of := compute.Probability(row, multi)
		for j := range order {
			order[j] = j
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
		all[i] = []Prediction{}
		for _, j := range order {
			if c.Top > 0 && len(all[i]) == c.Top || float64(of(j)) < c.Threshold {
				break
			}
			all[i] = append(all[i], Prediction{j, of(j)})
		}
	}
	return all
}
