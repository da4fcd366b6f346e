package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/cluster/shard"
)

// Rows that are lost are named in words, with what helps.
func TestStatusNamesLostRows(t *testing.T) {
	s := &clusterStatus{Nodes: []cluster.Status{{Node: "b", Answered: true}}, Lost: []int{1, 3}, ShardsAt: []cluster.Shard{
		{ID: 0, Node: "b", Nodes: []string{"b"}, Rows: 10}, {ID: 1, Rows: 20}, {ID: 2, Node: "b", Nodes: []string{"b"}, Rows: 30}, {ID: 3, Rows: 40},
	}}
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
	s.Lost = nil
	for i := range s.ShardsAt {
		s.ShardsAt[i].Nodes = []string{"b"}
	}
	if got := text(); strings.Contains(got, "lost") {
		t.Errorf("said\n%s", got)
	}
}

// Samplers that no node has are said to be nowhere.
func TestStatusNamesSamplersThatAreNowhere(t *testing.T) {
	s := &clusterStatus{Nodes: []cluster.Status{{Node: "c", Answered: true, Samplers: []string{"a", "", ""}}}}
	var out bytes.Buffer
	if err := s.write(&app{stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "a,nowhere,nowhere") {
		t.Errorf("said\n%s", got)
	}
}
