package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/cluster"
)

// plan --nodes shows where stages would be, from what it measured; what describes no cluster is refused.
func TestPlanNodes(t *testing.T) {
	nodes := []string{"plan", "--micro-batches", "2", "--threads", "1", "--shards", "4", "--bandwidth", "1Gbit/s", "--nodes", "2:trainer,rows:2", "--nodes", "1:sampler:0.5:3"}
	out, _ := mustInvoke(t, append(nodes, "--output", "json")...)
	var p struct {
		Samplers int
		Cluster  *cluster.ClusterPlan
	}
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatal(err)
	}
	if c := p.Cluster; p.Samplers != 1 || c == nil || len(c.Nodes) != 3 || len(c.Nodes[2].Samplers) == 0 || len(c.Nodes[2].Shards) != 0 || c.Nodes[2].Cores != 0.5 || c.Nodes[2].MaxSamplers != 3 ||
		c.Costs.BlockBytes <= 0 || c.Costs.RowBytes <= 0 || c.Step <= 0 || c.Nodes[0].Wire <= 0 {
		t.Errorf("%s", out)
	}
	text, _ := mustInvoke(t, nodes...)
	for _, want := range []string{"n2         sampler", "a step takes", " (3 at most)", "rows: the 4 shards go to n0, n1 alike"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if out, _ := mustInvoke(t, "plan", "--output", "json"); strings.Contains(out, `"cluster"`) {
		t.Errorf("a cluster that nobody described: %s", out)
	}
	for want, args := range map[string][]string{
		"with a COUNT":          {"--nodes", "x"},
		"is none of sampler":    {"--nodes", "2:store"},
		`"-1" cores`:            {"--nodes", "2::-1"},
		`"0" samplers at most`:  {"--nodes", "2:sampler::0"},
		"which take none":       {"--nodes", "1:trainer,rows:1:2"},
		"fit on no node":        {"--micro-batches", "2", "--nodes", "2:trainer,rows", "--nodes", "1:sampler::1"},
		"is not a rate":         {"--nodes", "2", "--bandwidth", "fast"},
		"describe it with":      {"--bandwidth", "1GB/s"},
		"nodes that train":      {"--nodes", "3"},
		"no node samples":       {"--nodes", "1:trainer,rows"},
		"what a micro-batch ta": {"--nodes", "1", "--sampler", "full"},
	} {
		code, _, errs := invoke(t, append([]string{"plan"}, args...)...)
		if code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
	for text, want := range map[string]float64{"10Gbit/s": 1.25e9, "125MB/s": 125e6, "8Mbit": 1e6} {
		if got, err := parseRate(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
