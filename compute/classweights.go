package compute

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
)

// ParseClassWeights reads one number for each class, or class=number pairs, by the classes' names: the others have 1.
func ParseClassWeights(text string, names []string) ([]float64, error) {
	fields, weights := strings.Split(text, ","), slices.Repeat([]float64{1}, len(names))
	pairs := strings.Contains(text, "=")
	if !pairs && len(fields) != len(names) {
		return nil, fmt.Errorf("%d numbers for %d classes, %s; give one for each, class=number pairs, or balanced", len(fields), len(names), listedClasses(names))
	}
	given := make([]bool, len(names))
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

// BalancedWeights returns weights by which all classes that the nodes have count alike, as scikit-learn's: nodes/(classes·nodes of the class);
// of several labels a node, how many do not have it for each that has, as PyTorch says of pos_weight. What no node has, or all have, has 1.
func BalancedWeights(l *graph.Labels, nodes []uint32) []float64 {
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
		for j, y := range l.Of(v) {
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
