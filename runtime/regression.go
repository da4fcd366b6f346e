package runtime

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

const taskRegression = "regression"

// regressionLosses are those of task regression, by compute's numbers.
var regressionLosses = []string{compute.SquaredError: "mse", compute.AbsoluteError: "l1", compute.HuberError: "huber"}

// Target is how the numbers of task regression are learnt: a model's output y stands for Mean + Deviation·y.
type Target struct {
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"`
}

// number is what an output stands for.
func (t *Target) number(y float32) float32 { return float32(t.Mean + float64(t.Deviation*float64(y))) }

// settleTask finds out whether classes or numbers are learnt, where Task does not say, and checks that the data has what it says.
func (c *settings) settleTask(l *graph.Labels) error {
	numbers := l != nil && l.Values != nil
	switch task := &c.Model.Task; {
	case *task == "link":
		return nil
	case *task == "" && numbers:
		*task = taskRegression
		p := new(problems)
		if c.validateLoss(p); *p != nil {
			return fmt.Errorf("%w: %s", ErrConfig, (*p)[0])
		}
	case *task == taskRegression && l != nil && !numbers:
		return fmt.Errorf("%w: task: the labels are classes, and regression learns numbers; import the data with --label COL:number, or leave task out", ErrConfig)
	case *task != taskRegression && numbers:
		return fmt.Errorf("%w: task: the labels are numbers, which task regression learns; leave task out", ErrConfig)
	}
	if slices.Contains(regressionLosses, c.Training.Loss) && c.Model.Task != taskRegression && l != nil {
		return fmt.Errorf("%w: loss: %s is of numbers, and the labels are classes; choose %s or %s", ErrConfig, c.Training.Loss, crossEntropyLoss, focalLoss)
	}
	return nil
}

// findTarget finds how numbers are learnt: as the saved model did, or by the training nodes'.
func (c *settings) findTarget(ds *graph.Dataset) {
	if m := c.Model.Saved; m != nil {
		if c.target = (Target{0, 1}); m.about != nil && m.about.Target != nil {
			c.target = *m.about.Target
		}
		return
	}
	c.target = Target{0, 1}
	if ds.Labels == nil || len(ds.Train) == 0 {
		return
	}
	var sum, squares, n float64
	for pass := range 2 {
		for _, v := range ds.Train {
			x := float64(ds.Labels.Values[v])
			switch {
			case x != x:
			case pass == 0:
				sum, n = sum+x, n+1
			default:
				squares += float64((x - c.target.Mean) * (x - c.target.Mean))
			}
		}
		c.target.Mean = sum / max(n, 1)
	}
	if squares > 0 {
		c.target.Deviation = math.Sqrt(squares / n)
	}
}

// Regression reports whether nodes' numbers are learnt, and not their classes.
func (r *Runtime) Regression() bool { return r.cfg.Model.Task == taskRegression }

// PredictValues returns the number that is predicted of each node of ids, of a model of task regression. It costs what Embed costs.
func (r *Runtime) PredictValues(ctx context.Context, ids []uint32) ([]float32, error) {
	if !r.Regression() {
		return nil, fmt.Errorf("%w: numbers are predicted with task regression; Predict says classes", ErrTask)
	}
	e, err := r.Embed(ctx, ids)
	if err != nil {
		return nil, err
	}
	return r.Values(e), nil
}

// Values returns the number that each row of e stands for, an output of a model of task regression.
func (r *Runtime) Values(e *Embedding) []float32 {
	values := make([]float32, e.Rows)
	for i := range values {
		values[i] = r.cfg.target.number(e.Data[i*e.Cols])
	}
	return values
}

// scoreValues compares row i of out with the number of nodes[i].
func (t *Target) scoreValues(l *graph.Labels, out cpu.Matrix[float32], nodes []uint32) Metrics {
	predicted, values := make([]float32, len(nodes)), make([]float32, len(nodes))
	for i, v := range nodes {
		predicted[i], values[i] = t.number(out.Row(i)[0]), l.Values[v]
	}
	m := Metrics{Accuracy: math.NaN(), AUC: math.NaN()}
	m.RegressionMetrics, m.Count = compute.MeasureRegression(predicted, values)
	m.Loss = m.RMSE * m.RMSE
	return m
}
