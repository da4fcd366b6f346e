package runtime

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
)

// Scores of pairs are those of the embeddings of their ends, with either decoder; the best links of a node are the best of all pairs with it,
// without itself and what is joined to it.
func TestScoreLinks(t *testing.T) {
	t.Parallel()
	for _, decoder := range []string{"dot", "mlp"} {
		c := config()
		c.Model.Task, c.Model.LinkDecoder, c.Training.Epochs = "link", decoder, 1
		r := started(t, c)
		trained(t, r)
		const node, k = 7, 5
		n := r.Dataset().Graph.NumNodes()
		var src, dst []uint32
		for v := range uint32(n) {
			src, dst = append(src, node), append(dst, v)
		}
		all, err := r.ScoreLinks(context.Background(), src, dst)
		if err != nil || len(all) != n {
			t.Fatal(err)
		}
		if decoder == "dot" {
			e, err := r.Embed(context.Background(), []uint32{node, 9})
			if err != nil {
				t.Fatal(err)
			}
			var want float64
			for j := range e.Cols {
				want += float64(e.Data[j]) * float64(e.Data[e.Cols+j])
			}
			if got := float64(all[9].Score); got-want > 1e-4 || want-got > 1e-4 {
				t.Errorf("the score of %d and 9 is %v, want %v", node, got, want)
			}
		}
		few, err := r.ScoreLinks(context.Background(), []uint32{9, node}, []uint32{node, 599})
		if err != nil || few[0].Score != all[9].Score || few[1] != all[599] || few[0].Node != node {
			t.Errorf("%s: some pairs alone: %+v, %v; want %+v, %+v", decoder, few, err, all[9], all[599])
		}
		for _, joined := range []bool{false, true} {
			want := slices.DeleteFunc(slices.Clone(all), func(s LinkScore) bool { return s.Node == node || !joined && r.links.Joined(node, s.Node) })
			if !joined && len(want) >= n-1 {
				t.Fatal("nothing is joined to the node")
			}
			slices.SortStableFunc(want, func(a, b LinkScore) int {
				switch {
				case a.Score > b.Score:
					return -1
				case a.Score < b.Score:
					return 1
				}
				return 0
			})
			if top, err := topOf(r, node, n, joined, nil); err != nil || !slices.Equal(top, want) {
				t.Errorf("%s: %d links, %v; want %d", decoder, len(top), err, len(want))
			}
			if top, err := topOf(r, node, k, joined, nil); err != nil || !slices.Equal(top, want[:k]) {
				t.Errorf("%s: the best links are %+v, %v; want %+v", decoder, top, err, want[:k])
			}
		}
		among := []uint32{599, 20, node, 3, 20, 300}
		some := slices.DeleteFunc(slices.Clone(all), func(s LinkScore) bool { return s.Node == node || !slices.Contains(among, s.Node) })
		slices.SortStableFunc(some, func(a, b LinkScore) int { return cmp.Compare(b.Score, a.Score) })
		if top, err := topOf(r, node, k, true, among); err != nil || !slices.Equal(top, some) {
			t.Errorf("%s: among some: %+v, %v; want %+v", decoder, top, err, some)
		}
		if _, err := topOf(r, node, k, true, []uint32{uint32(n)}); !errors.Is(err, ErrNode) {
			t.Errorf("among nodes that there are not: %v", err)
		}
		if top, err := topOf(r, node, n+5, true, nil); err != nil || len(top) != n-1 {
			t.Errorf("%d of all %d nodes, %v", len(top), n, err)
		}
		if _, err := topOf(r, uint32(n), k, false, nil); !errors.Is(err, ErrNode) {
			t.Error(err)
		}
		for _, among := range [][]uint32{nil, among} { // of several nodes at once
			several := []uint32{9, node, 9}
			all, err := r.TopLinks(context.Background(), several, k, false, among)
			for i, v := range several {
				if one, _ := topOf(r, v, k, false, among); err != nil || len(one) == 0 || !slices.Equal(all[i], one) {
					t.Errorf("%s: of %d: %+v, %v; want %+v", decoder, v, all, err, one)
				}
			}
		}
	}
	if _, err := started(t, config()).ScoreLinks(context.Background(), []uint32{1}, []uint32{2}); !errors.Is(err, ErrTask) {
		t.Error(err)
	}
}

// topOf is TopLinks of one node.
func topOf(r *Runtime, node uint32, k int, joined bool, among []uint32) ([]LinkScore, error) {
	top, err := r.TopLinks(context.Background(), []uint32{node}, k, joined, among)
	if err != nil {
		return nil, err
	}
	return top[0], nil
}
