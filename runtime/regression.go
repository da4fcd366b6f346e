package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
)

const taskRegression = "regression"

// regressionLosses are those of task regression, by compute's numbers.
var regressionLosses = []string{compute.SquaredError: "mse", compute.AbsoluteError: "l1", compute.HuberError: "huber"}

// Target is how the numbers of task regression are learnt.
type Target = compute.Target

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
		if c.target = (Target{Deviation: 1}); m.about != nil && m.about.Target != nil {
			c.target = *m.about.Target
		}
		return
	}
	c.target = Target{Deviation: 1}
	if ds.Labels != nil && len(ds.Train) > 0 {
		c.target = compute.FitTarget(ds.Labels.Values, ds.Train)
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
		values[i] = r.cfg.target.Value(e.Data[i*e.Cols])
	}
	return values
}
