package runtime

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
)

// A saved model computes on other data than that which it was trained on: on nodes without labels, and with fewer classes. The data
// is brought to what the model knows, or it is said what does not fit.

// madeBy returns how the model's features and classes were made of columns; nil: the file does not say.
func (m *Model) madeBy() (*importer.Recipe, error) {
	if m == nil || m.recipe == "" {
		return nil, nil
	}
	return importer.ParseRecipe([]byte(m.recipe))
}

// read returns ds as the model reads it: with the model's classes, and its names of them. Features that are known to be made
// otherwise than those that it was trained on are an error that names their columns.
func (m *Model) read(ds *graph.Dataset, log *slog.Logger) (*graph.Dataset, error) {
	if m.about == nil {
		return ds, nil
	}
	learnt, err := m.madeBy()
	if err != nil {
		return nil, fmt.Errorf("runtime: saved model: %s: %w", m.path, err)
	}
	var made *importer.Recipe
	if ds.Recipe != nil {
		err = graph.Guard(func() (err error) {
			made, err = importer.ParseRecipe(ds.Recipe)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	copied := *ds
	switch {
	case learnt == nil:
	case made == nil:
		log.Warn("the data does not say which columns its features were made of: they are taken for those that the model was trained on", "file", m.path)
	default:
		if bad := learnt.Unlike(made, m.about.Model.EdgeDim > 0); bad != nil {
			return nil, fmt.Errorf("%w: the features of %s are not made as those that %s was trained on: %s; import the tables again with --recipe %[3]s", ErrConfig, ds.Name, m.path, strings.Join(bad, "; "))
		}
	}
	if learnt != nil {
		copied.Recipe = []byte(m.recipe)
	}
	if copied.Labels, err = m.labels(ds.Labels, learnt, made); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, ds.Name, err)
	}
	return &copied, nil
}

// labels returns l, of data made by one recipe or nil, with the classes of the model, made by another or nil.
func (m *Model) labels(l *graph.Labels, learnt, made *importer.Recipe) (*graph.Labels, error) {
	n := m.about.Model.OutDim
	if m.about.Task == taskRegression && l != nil && l.Values == nil {
		return nil, errors.New("its labels are classes, and the model predicts numbers; import it with --label COL:number, or --label none")
	}
	if m.about.Task == "node" && l != nil && l.Values != nil {
		return nil, errors.New("its labels are numbers, and the model predicts classes; import it with --label COL, or --label none")
	}
	if l == nil || m.about.Task != "node" || l.NumClasses > n {
		return l, nil // more classes are refused with the other widths
	}
	if m.about.MultiLabel && !l.IsMulti() {
		return nil, errors.New("its nodes have one class each, and the model was trained on several labels a node")
	}
	to := make([]int32, l.NumClasses) // the model's number of each class
	same := true
	for i := range to {
		to[i] = int32(i)
		if learnt == nil || made == nil || learnt.Label == nil || made.Label == nil || learnt.Label.Classes == nil || made.Label.Classes == nil {
			continue
		}
		k := slices.Index(learnt.Label.Classes, made.ClassName(i))
		if k < 0 || k >= n {
			return nil, fmt.Errorf("the class %q is none of the model's, which are %s", made.ClassName(i), strings.Join(learnt.Label.Classes, ", "))
		}
		to[i], same = int32(k), same && k == i
	}
	out := &graph.Labels{NumClasses: n, Class: l.Class}
	err := graph.Guard(func() error {
		switch {
		case l.IsMulti() && n > l.NumClasses:
			nodes := len(l.Multi) / max(l.NumClasses, 1)
			out.Multi = make([]uint8, nodes*n)
			for v := range nodes {
				copy(out.Multi[v*n:], l.Multi[v*l.NumClasses:(v+1)*l.NumClasses])
			}
		case l.IsMulti():
			out.Multi = l.Multi
		case !same:
			out.Class = slices.Clone(l.Class)
			for v, class := range out.Class {
				if class >= 0 && int(class) < len(to) {
					out.Class[v] = to[class]
				}
			}
		}
		return nil
	})
	return out, err
}

// errUnlabelled says that predictions cannot be measured.
func errUnlabelled(ds *graph.Dataset) error {
	return fmt.Errorf("%w: %s has no labels to compare predictions with; Predict and Embed need none", ErrTask, ds.Name)
}
