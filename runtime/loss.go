package runtime

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
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
		loss.ClassWeights, err = parseClassWeights(t.ClassWeights, recipe, classes)
	case ds == nil:
		err = errors.New("balanced weights are not counted over a partition set with the sampler full; give a number for each class")
	default:
		err = graph.Guard(func() error {
			loss.ClassWeights = balanced(ds.Labels, ds.Train)
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

// parseClassWeights reads one number for each class, or class=number pairs.
func parseClassWeights(text string, recipe []byte, classes int) ([]float64, error) {
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
	fields, weights := strings.Split(text, ","), slices.Repeat([]float64{1}, classes)
	pairs := strings.Contains(text, "=")
	if !pairs && len(fields) != classes {
		return nil, fmt.Errorf("%d numbers for %d classes, %s; give one for each, class=number pairs, or balanced", len(fields), classes, listedClasses(names))
	}
	given := make([]bool, classes)
	for i, f := range fields {
		class := i
		if at := strings.LastIndexByte(f, '='); pairs {
			if at < 0 {
				return nil, fmt.Errorf("%q is no pair; write class=number for each", f)
			}
			if class = slices.Index(names, strings.TrimSpace(f[:at])); class < 0 {
				return nil, fmt.Errorf("there is no class %q; they are %s", f[:at], listedClasses(names))
			}
			f = f[at+1:]
		}
		w, err := strconv.ParseFloat(strings.TrimSpace(f), 64)
		if err != nil || !(w >= 0) || math.IsInf(w, 0) {
			return nil, fmt.Errorf("the weight of class %q is %q; it must be 0 or a positive number", names[class], f)
		}
		if given[class] {
			return nil, fmt.Errorf("class %q has two weights", names[class])
		}
		weights[class], given[class] = w, true
	}
	if slices.Max(weights) == 0 {
		return nil, errors.New("all are 0: nothing would be learnt")
	}
	return weights, nil
}

func listedClasses(names []string) string {
	const most = 12
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s, … (%d in all)", strings.Join(names[:most], ", "), len(names))
}

// balanced returns weights by which all classes that the nodes have count alike, as scikit-learn's: nodes/(classes·nodes of the class);
// of several labels a node, how many do not have it for each that has, as PyTorch says of pos_weight. What no node has, or all have, has 1.
func balanced(l *graph.Labels, nodes []uint32) []float64 {
	counts, labelled := make([]int, l.NumClasses), 0
	for _, v := range nodes {
		if !l.IsMulti() {
			if class := l.Class[v]; class != graph.Unlabeled {
				counts[class]++
				labelled++
			}
			continue
		}
		labelled++
		for j, y := range l.Multi[int(v)*l.NumClasses : (int(v)+1)*l.NumClasses] {
			counts[j] += int(y)
		}
	}
	seen := 0
	for _, n := range counts {
		if n > 0 {
			seen++
		}
	}
	weights := make([]float64, len(counts))
	for i, n := range counts {
		switch {
		case n == 0, l.IsMulti() && n == labelled:
			weights[i] = 1
		case l.IsMulti():
			weights[i] = float64(labelled-n) / float64(n)
		default:
			weights[i] = float64(labelled) / float64(seen*n)
		}
	}
	return weights
}
