package runtime

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
)

// The losses of classes, and the weights that are made of the training nodes.
const (
	crossEntropyLoss = "cross-entropy"
	focalLoss        = "focal"
	balancedWeights  = "balanced"
)

// gamma is FocalGamma, or what stands for 0.
func (t *TrainingConfig) gamma() float64 {
	if t.FocalGamma == 0 {
		return 2
	}
	return t.FocalGamma
}

// validateLoss reports settings of the loss that do not go together.
func (c *Config) validateLoss(p *problems) {
	t := &c.Training
	p.oneOf("loss", t.Loss, append([]string{"", crossEntropyLoss, focalLoss}, regressionLosses...)...)
	if regression := slices.Contains(regressionLosses, t.Loss); c.Model.Task == "node" {
		p.check(!regression, "loss: %s is of numbers, and task is node; choose %s or %s", t.Loss, crossEntropyLoss, focalLoss)
	} else if c.Model.Task == taskRegression || regression {
		const numbers = "%s: is of classes, and task regression learns numbers; leave it out"
		p.check(t.Loss == "" || regression, "loss: %s is of classes, and task is regression; choose %s", t.Loss, strings.Join(regressionLosses, ", "))
		p.check(t.LabelSmoothing == 0, numbers, "label-smoothing")
		p.check(t.ClassWeights == "", numbers, "class-weights")
	}
	p.check(t.FocalGamma >= 0 && !math.IsInf(t.FocalGamma, 0), "focal-gamma: %v must be 0, which is 2, or a positive number", t.FocalGamma)
	p.check(t.FocalGamma == 0 || t.Loss == focalLoss, "focal-gamma: is of the focal loss; set loss to focal, or leave it out")
	p.check(t.LabelSmoothing >= 0 && t.LabelSmoothing < 1, "label-smoothing: %v is not in [0, 1)", t.LabelSmoothing)
	p.check(t.LabelSmoothing == 0 || t.Loss != focalLoss, "label-smoothing: smooths the targets of cross-entropy, and loss is focal; leave one out")
	if c.Model.Task == "link" {
		const classes = "%s: is of nodes with classes, and task is link; leave it out"
		p.check(t.Loss == "", classes, "loss")
		p.check(t.LabelSmoothing == 0, classes, "label-smoothing")
		p.check(t.ClassWeights == "", classes, "class-weights")
	}
}

// classLoss returns what classes cost in training, of which there are so many, with names in a recipe; nil: the cross-entropy. Weights that
// are balanced are those of ds, which has all nodes; nil: nobody has.
func (c *settings) classLoss(recipe []byte, classes int, ds *graph.Dataset) (*compute.Loss, error) {
	t := &c.Training
	loss := &compute.Loss{Smoothing: t.LabelSmoothing}
	if t.Loss == focalLoss {
		loss.Gamma = t.gamma()
	}
	var err error
	switch {
	case t.ClassWeights == "":
	case t.ClassWeights != balancedWeights:
		var names []string
		if names, err = classNames(recipe, classes); err == nil {
			loss.ClassWeights, err = compute.ParseClassWeights(t.ClassWeights, names)
		}
	case ds == nil:
		err = errors.New("balanced weights are not counted over a partition set whose pieces compute each batch together; give a number for each class")
	default:
		err = graph.Guard(func() error {
			loss.ClassWeights = compute.BalancedWeights(ds.Labels, ds.Train)
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: class-weights: %w", ErrConfig, err)
	}
	if loss.Plain() {
		return nil, nil
	}
	return loss, nil
}

// classNames are those of so many classes, by the recipe of the data, or else their numbers.
func classNames(recipe []byte, classes int) ([]string, error) {
	made := new(importer.Recipe)
	if recipe != nil {
		err := graph.Guard(func() (err error) {
			made, err = importer.ParseRecipe(recipe)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	names := make([]string, classes)
	for i := range names {
		names[i] = made.ClassName(i)
	}
	return names, nil
}
