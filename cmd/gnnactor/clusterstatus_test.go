package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/cluster/shard"
)

// Rows that are lost are named in words, with what helps.
func TestStatusNamesLostRows(t *testing.T) {
	s := &clusterStatus{Nodes: []cluster.Status{{Node: "b", Answered: true}}, Lost: []int{1, 3}, ShardsAt: []cluster.Shard{
		{ID: 0, Node: "b", Nodes: []string{"b"}, Rows: 10}, {ID: 1, Rows: 20}, {ID: 2, Node: "b", Nodes: []string{"b"}, Rows: 30}, {ID: 3, Rows: 40},
	}, Actors: []cluster.Actor{{Kind: "shard", ID: "0", Node: "b"}, {Kind: "shard", ID: "1"}}}
	text := func() string {
		var out bytes.Buffer
		if err := s.write(&app{stdout: &out}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := text(); !strings.Contains(got, "nobody: lost") ||
		!strings.HasSuffix(got, "lost with all nodes that held them: shards 1 3 (60 of 100 rows of the features); start a node that has the data: training waits for them until then\n") {
		t.Errorf("said\n%s", got)
	}
	s.Nodes[0].Source = true
	if got := text(); !strings.Contains(got, "start a node with --roles rows, which copies them from node b") {
		t.Errorf("said\n%s", got)
	}
	s.Nodes[0].Kinds = []string{"sampler", shard.Kind}
	if got := text(); !strings.Contains(got, "\nb     sampler,rows,data") { // as --roles has it
		t.Errorf("said\n%s", got)
	}
	if got := text(); !strings.Contains(got, "node b has the data, and they are copied from it") {
		t.Errorf("said\n%s", got)
	}
	s.Nodes[0].Most = 2
	if got := text(); !strings.Contains(got, "sampler (2 at most)") {
		t.Errorf("said\n%s", got)
	}
	s.Lost = nil
	for i := range s.ShardsAt {
		s.ShardsAt[i].Nodes = []string{"b"}
	}
	if got := text(); strings.Contains(got, "lost") {
		t.Errorf("said\n%s", got)
	}
}

// Actors of all kinds have a row each, with node, since when, and how they do; those that no node has are nowhere.
func TestStatusOfActors(t *testing.T) {
	since := time.Date(2026, 11, 23, 14, 0, 5, 0, time.Local)
	s := &clusterStatus{
		Nodes: []cluster.Status{{Node: "c", Answered: true, Training: cluster.Training{State: "stepping", Group: 7, Pauses: 3, Pause: 0.04, MostPause: 0.05}}, {Node: "d"}}, Parameters: &cluster.Parameters{Step: 1234},
		ShardsAt: []cluster.Shard{{ID: 10, Node: "e", Nodes: []string{"c", "e"}, Rows: 2000, Bytes: 1 << 20}},
		Actors: []cluster.Actor{
			{Kind: "coordinator", ID: "run", Node: "c", Since: since.Unix()}, {Kind: "parameters", ID: "run", Node: "c"}, {Kind: "trainer", ID: "c", Node: "c"}, {Kind: "trainer", ID: "d", Node: "d"},
			{Kind: "sampler", ID: "c:0"}, {Kind: "sampler", ID: "c:1", Node: "e"}, {Kind: "shard", ID: "10", Node: "e"},
		},
	}
	var out bytes.Buffer
	if err := s.writeActors(&app{stdout: &out}); err != nil {
		t.Fatal(err)
	}
	const want = `
actor           node                since
coordinator        c  2026-11-23 14:00:05
parameters         c                                                                 at step 1,234
trainer c          c                       stepping in group 7, 3 pauses: 40.0 ms, 50.0 ms at most
trainer d          d
sampler c:0  nowhere
sampler c:1        e
shard 10           e                                             2,000 rows, 1.00 MiB, copies on c
`
	if got := out.String(); got != want {
		t.Errorf("said\n%s\nwant\n%s", got, want)
	}
}
