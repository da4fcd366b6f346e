package importer

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// Times follow their nodes and edges through every format that has them.
func TestTimesFromEveryFormat(t *testing.T) {
	nodes, edges := []int64{2001, -5, 0, 1 << 40}, []int64{300, 500, 100, 400, 200} // of small's rows: 1→0, 3→0, 0→1, 2→2, 1→3
	nodeTimes := npy("<i8", "(4,)", nodes)
	edgeTimes := npy("<i4", "(5, 1)", []int32{500, 100, 300, 400, 200})
	bolt := strings.Replace(smallBolt["metadata.yaml"], "feature_data:", `feature_data:
  - {domain: node, name: timestamp, format: numpy, path: nt.npy}
  - {domain: edge, name: time, format: numpy, path: et.npy}`, 1)
	for name, c := range map[string]struct {
		f           files
		nodes, edge bool
	}{
		"numpy":     {smallNumPy.with("node_times.npy", nodeTimes).with("edge_times.npy", edgeTimes), true, true},
		"graphbolt": {smallBolt.with("metadata.yaml", bolt).with("nt.npy", nodeTimes).with("et.npy", edgeTimes), true, true},
		"ogb":       {smallOGB.with("raw/node_year.csv.gz", gz("2001\n-5\n0\n1099511627776\n")), true, false},
		"edge list, weight and time": {smallList.with("graph.tsv.zst", "").with("graph.csv",
			"3,0,5,500\n0,1,1,100\n1,0,3,300\n2,2,4,400\n1,3,2,200\n"), false, true},
		"edge list, time and weight": {smallList.with("graph.tsv.zst", "").with("graph.csv",
			"src,dst,Timestamp,weight\n3,0,500,5\n0,1,100,1\n1,0,300,3\n2,2,400,4\n1,3,200,2\n"), false, true},
	} {
		ds := imported(t, c.f.write(t), Options{})
		checkSmall(t, ds)
		if c.nodes != (ds.NodeTimes != nil) || c.edge != (ds.EdgeTimes != nil) {
			t.Errorf("%s: times of nodes %v, of edges %v", name, ds.NodeTimes, ds.EdgeTimes)
		}
		if c.nodes && !reflect.DeepEqual(ds.NodeTimes, nodes) || c.edge && !reflect.DeepEqual(ds.EdgeTimes, edges) {
			t.Errorf("%s: times of nodes %v, of edges %v", name, ds.NodeTimes, ds.EdgeTimes)
		}
	}
}

// Reversed edges keep the time, added loops are always there, and a store that
// is imported again keeps all.
func TestTimesUnderOptions(t *testing.T) {
	src := files{"g.csv": "from,to,time\n0,1,7\n2,1,9\n"}.write(t)
	ds := imported(t, src, Options{Undirected: true, SelfLoops: true})
	always := int64(math.MinInt64)
	if want := []int64{always, 7, 7, always, 9, 9, always}; !reflect.DeepEqual(ds.EdgeTimes, want) {
		t.Errorf("times %v, want %v", ds.EdgeTimes, want)
	}
	again := imported(t, created(t, ds), Options{})
	if !reflect.DeepEqual(again.EdgeTimes, ds.EdgeTimes) || again.Fingerprint != ds.Fingerprint {
		t.Errorf("imported again: times %v", again.EdgeTimes)
	}
}

func TestBadTimesAreRefused(t *testing.T) {
	for want, f := range map[string]files{
		"has 3 nodes":                 smallNumPy.with("node_times.npy", npy("<i8", "(3,)", []int64{1, 2, 3})),
		"4 rows, but there are 5":     smallNumPy.with("edge_times.npy", npy("<i8", "(4,)", []int64{1, 2, 3, 4})),
		"integers are needed":         smallNumPy.with("node_times.npy", npy("<f4", "(4,)", []float32{1, 2, 3, 4})),
		"want times":                  smallNumPy.with("node_times.npy", npy("<i8", "(2, 2)", []int64{1, 2, 3, 4})),
		`line 2: time: "x"`:           {"g.csv": "from,to,time\n0,1,x\n"},
		`line 2: "new" is not a time`: smallOGB.with("raw/node_year.csv.gz", gz("2001\nnew\n0\n1\n")),
		"5 columns without names":     {"g.csv": "0,1,2,3,4\n"},
	} {
		err := Import(t.Context(), f.write(t), t.TempDir()+"/store", Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
