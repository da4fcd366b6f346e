package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// columnsOf is a recipe of features in as many columns as small has, and of its classes by names.
func columnsOf(names ...string) []byte {
	var columns []string
	for i := range small().NodeFeatures.Cols {
		columns = append(columns, fmt.Sprintf(`{"column":"x%d","kind":"number"}`, i))
	}
	return fmt.Appendf(nil, `{"version":1,"nodes":[%s],"label":{"column":"class","classes":["%s"]}}`, strings.Join(columns, ","), strings.Join(names, `","`))
}

// A saved model computes on data without labels and splits what it computes on the same with them; there is nothing to
// learn or to measure then.
func TestModelOnUnlabelledData(t *testing.T) {
	file, want := savedModel(t, config())
	bare := &graph.Dataset{Name: "bare", Graph: small().Graph, NodeFeatures: small().NodeFeatures}
	c := config()
	c.Data.Dataset, c.Model.Params = bare, file
	r := started(t, c)
	if got := embedded(t, r); !reflect.DeepEqual(got, want) {
		t.Errorf("nodes are %v, and with labels %v", got, want)
	}
	if p, err := r.Predict(t.Context(), []uint32{5, 0, 599}); err != nil || len(p) != 3 {
		t.Errorf("predictions: %v, %v", p, err)
	}
	if _, err := r.Evaluate(t.Context(), []uint32{5}); !errors.Is(err, ErrTask) {
		t.Errorf("measured: %v", err)
	}
	if err := run(t.Context(), r, nil); !errors.Is(err, ErrNoModel) {
		t.Errorf("trained: %v", err)
	}
	c.Model.Params = ""
	if err := run(t.Context(), started(t, c), nil); !errors.Is(err, ErrNoModel) {
		t.Errorf("without a saved model: %v", err)
	}
}

// Classes of other data are the model's of the same names, in whatever order, and however few.
func TestModelOnFewerClasses(t *testing.T) {
	full := *small()
	full.Fingerprint, full.Recipe = "", columnsOf("a", "b", "c", "d")
	c := config()
	c.Data.Dataset = &full
	file, _ := savedModel(t, c)
	few := full // classes c and a alone
	few.Labels = &graph.Labels{NumClasses: 2, Class: slices.Clone(full.Labels.Class)}
	few.Recipe = columnsOf("c", "a")
	wanted := full
	wanted.Labels = &graph.Labels{NumClasses: 4, Class: slices.Clone(full.Labels.Class)}
	for v, class := range full.Labels.Class {
		switch class {
		case 0:
			few.Labels.Class[v] = 1
		case 2:
			few.Labels.Class[v] = 0
		default:
			few.Labels.Class[v], wanted.Labels.Class[v] = graph.Unlabeled, graph.Unlabeled
		}
	}
	for _, ds := range []*graph.Dataset{&few, &wanted} {
		ds.Train, ds.Valid, ds.Test, ds.Fingerprint = nil, nil, nil, ""
	}
	measured := func(ds *graph.Dataset) Metrics {
		c := c
		c.Data.Dataset, c.Model.Params = ds, file
		m, err := started(t, c).EvaluateAUC(t.Context(), full.Test)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if got, want := measured(&few), measured(&wanted); got != want || got.Count == 0 {
		t.Errorf("two classes in another order: %+v, and by the model's numbers %+v", got, want)
	}
	for text, change := range map[string]func(ds *graph.Dataset){
		`the class "e" is none of the model's`:   func(ds *graph.Dataset) { ds.Recipe = columnsOf("c", "e") },
		`there is no column "x0"`:                func(ds *graph.Dataset) { ds.Recipe = []byte(strings.Replace(string(ds.Recipe), `"x0"`, `"y"`, 1)) },
		`the model does not know the column "y"`: func(ds *graph.Dataset) { ds.Recipe = []byte(strings.Replace(string(ds.Recipe), `"x0"`, `"y"`, 1)) },
		`the column "x1" is another number`: func(ds *graph.Dataset) {
			ds.Recipe = []byte(strings.Replace(string(ds.Recipe), `"x1",`, `"x1","factor":2,`, 1))
		},
		fmt.Sprintf("; and %d columns more; import", 2*full.NodeFeatures.Cols-6): func(ds *graph.Dataset) {
			ds.Recipe = []byte(strings.ReplaceAll(string(ds.Recipe), `"x`, `"y`))
		},
		"import the tables again with --recipe " + file: func(ds *graph.Dataset) {
			ds.Recipe = []byte(strings.Replace(string(ds.Recipe), `"x1",`, `"x1","factor":2,`, 1))
		},
		"the number of outputs is 5, and the model's 4": func(ds *graph.Dataset) {
			ds.Labels, ds.Recipe = &graph.Labels{NumClasses: 5, Class: ds.Labels.Class}, nil
		},
	} {
		ds := few
		change(&ds)
		c := c
		c.Data.Dataset, c.Model.Params = &ds, file
		r, err := Start(t.Context(), c)
		if err == nil {
			r.Stop()
		}
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q: %v", text, err)
		}
	}
}

// Labels of nodes that have several are the model's first ones where the data has fewer.
func TestModelOnFewerLabels(t *testing.T) {
	m := &Model{about: &Description{Task: "node", MultiLabel: true}}
	m.about.Model.OutDim = 3
	l, err := m.labels(&graph.Labels{NumClasses: 2, Multi: []uint8{1, 0, 0, 1}}, nil, nil)
	if err != nil || l.NumClasses != 3 || !slices.Equal(l.Multi, []uint8{1, 0, 0, 0, 1, 0}) {
		t.Errorf("labels %+v, %v", l, err)
	}
	if _, err := m.labels(&graph.Labels{NumClasses: 3, Class: []int32{0}}, nil, nil); err == nil {
		t.Error("one class a node is taken for several labels")
	}
}

// A directory of checkpoints is a model: the one that the run would end with. It says how far the run is.
func TestModelOfCheckpoints(t *testing.T) {
	c := unsteady()
	c.Data.NormalizeFeatures, c.Checkpoint.Dir = true, t.TempDir()
	r := started(t, c)
	done := trained(t, r)
	m, err := OpenModel(t.Context(), c.Checkpoint.Dir)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := m.Progress()
	if n, sum := m.Parameters(); !ok || p.Epochs != 8 || p.BestEpoch != done.Best || p.BestFigure != done.ValidAccuracy || n != r.NumParameters() || sum != sumOf(t, r) {
		t.Errorf("%d parameters %s of %+v; trained were %d, %s, and %+v", n, sum, p, r.NumParameters(), sumOf(t, r), done)
	}
	conf, err := m.Config()
	if err != nil {
		t.Fatal(err)
	}
	if conf.Data.Dataset = small(); !conf.Data.NormalizeFeatures {
		t.Error("it does not say that features were normalised")
	}
	if got := embedded(t, started(t, conf)); !reflect.DeepEqual(got, embedded(t, r)) {
		t.Error("other outputs than the runtime's")
	}
	conf.Data.NormalizeFeatures = false
	if _, err := Start(t.Context(), conf); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "normalize-features") {
		t.Errorf("features that are not normalised: %v", err)
	}
	if _, err := OpenModel(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no checkpoints") {
		t.Errorf("an empty directory: %v", err)
	}
	files, err := checkpoint.List(c.Checkpoint.Dir)
	if err != nil {
		t.Fatal(err)
	}
	_, meta, err := compute.OpenSafetensors(t.Context(), files[0])
	if err != nil {
		t.Fatal(err)
	}
	old, err := OpenModel(t.Context(), withMetadata(t, files[0], map[string]string{checkpoint.Key: meta[checkpoint.Key]}))
	if err != nil {
		t.Fatal(err)
	}
	was, _ := m.Description()
	renamed, text := filepath.Join(t.TempDir(), "model.bin"), filepath.Join(t.TempDir(), "text")
	if err := errors.Join(os.Link(files[0], renamed), os.WriteFile(text, []byte("{ no model"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if !IsSaved(renamed) || IsSaved(text) {
		t.Error("parameters are not known by what is in the file")
	}
	if d, err := old.Description(); err != nil || !reflect.DeepEqual(d, was) || !IsSaved(filepath.Dir(files[0])) || IsSaved(t.TempDir()) {
		t.Errorf("a checkpoint of before it had a description says %+v, %v; want %+v", d, err, was)
	}
}
