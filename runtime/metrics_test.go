package runtime

import (
	"context"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// The metrics are compute's, of the embeddings and the labels; which ones the
// labels' kind decides.
func TestMetrics(t *testing.T) {
	multi := *small()
	k := multi.Labels.NumClasses
	labels := &graph.Labels{NumClasses: k, Multi: make([]uint8, multi.Graph.NumNodes()*k)}
	for v, class := range multi.Labels.Class {
		labels.Multi[v*k+int(class)] = 1
		labels.Multi[v*k+(int(class)+v%2)%k] = 1
	}
	multi.Labels, multi.Fingerprint = labels, ""
	for name, ds := range map[string]*graph.Dataset{"one": small(), "several": &multi} {
		c := config()
		c.Data.Dataset = ds
		r := started(t, c)
		trained(t, r)
		ctx := context.Background()
		nodes := r.Dataset().Test
		e, err := r.Embed(ctx, nodes)
		if err != nil {
			t.Fatal(err)
		}
		out := cpu.Dense(e.Rows, e.Cols, e.Data)
		var want Metrics
		if name == "one" {
			classes := make([]int32, len(nodes))
			for i, v := range nodes {
				classes[i] = ds.Labels.Class[v]
			}
			want.F1 = compute.SingleLabelF1(out, classes)
			want.AUC, want.AveragePrecision = compute.SingleLabelRanking(out, classes)
		} else {
			var bits []uint8
			for _, v := range nodes {
				bits = append(bits, ds.Labels.Multi[int(v)*k:(int(v)+1)*k]...)
			}
			want.F1 = compute.MultiLabelF1(out, bits)
			want.AUC, want.AveragePrecision = compute.MultiLabelRanking(out, bits)
		}
		got, err := r.EvaluateAUC(ctx, nodes)
		if err != nil {
			t.Fatal(err)
		}
		if got.F1 != want.F1 || got.AUC != want.AUC || got.Accuracy != want.F1.Micro {
			t.Errorf("labels of kind %s: %+v, want %+v", name, got, want)
		}
		if !(got.AUC > 0.55) {
			t.Errorf("labels of kind %s: AUC %v after training", name, got.AUC)
		}
		without, err := r.Evaluate(ctx, nodes)
		if err != nil {
			t.Fatal(err)
		}
		if without.AUC != 0 || without.F1 != got.F1 || without.Loss != got.Loss {
			t.Errorf("labels of kind %s: Evaluate gives %+v, EvaluateAUC %+v", name, without, got)
		}
	}
}
