//go:build unix

package importer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
	"github.com/gnnactor/gnnactor/graph/store"
)

// allocated returns the bytes that were allocated on the heap until now: their
// growth is no less than the peak's.
func allocated() int64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// importDamaged imports a directory and checks what must hold of any: no panic,
// a store that passes Verify or an error that a terminal can show, nothing left
// behind, and memory of no more than most bytes.
func importDamaged(f files, top string, most int64) error {
	_, err := tryImport(f, top, most, Options{})
	return err
}

// tryImport returns what Import says, and what is wrong with that.
func tryImport(f files, top string, most int64, o Options) (said, wrong error) {
	src, parent := filepath.Join(top, "data"), filepath.Join(top, "out")
	defer os.RemoveAll(top)
	if err := f.build(src); err != nil {
		return nil, err
	}
	if err := os.Mkdir(parent, 0o777); err != nil {
		return nil, err
	}
	before := allocated()
	said = Import(context.Background(), src, filepath.Join(parent, "store"), o)
	return said, checkImported(said, parent, allocated()-before, most)
}

func checkImported(err error, parent string, used, most int64) error {
	if used > most {
		return fmt.Errorf("%d MiB were allocated, want at most %d (%v)", used>>20, most>>20, err)
	}
	list, e := os.ReadDir(parent)
	if e != nil {
		return e
	}
	if err != nil {
		if len(list) > 0 {
			return fmt.Errorf("%s is left behind by: %v", list[0].Name(), err)
		}
		if s := err.Error(); len(s) > 1200 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(s, "root:") {
			return fmt.Errorf("the error shows too much: %q", s)
		}
		return nil
	}
	if len(list) != 1 || list[0].Name() != "store" {
		return fmt.Errorf("%v in place of a store", list)
	}
	s, err := store.Open(filepath.Join(parent, "store"))
	if err != nil {
		return fmt.Errorf("what was imported does not open: %w", err)
	}
	defer s.Close()
	if err := s.Verify(context.Background()); err != nil {
		return fmt.Errorf("what was imported is not whole: %w", err)
	}
	return nil
}

// mostMemory is what importing a damaged copy of f may take.
func mostMemory(t testing.TB, f files) int64 {
	t.Helper()
	before := allocated()
	src := filepath.Join(t.TempDir(), "data")
	if err := f.build(src); err != nil {
		t.Fatal(err)
	}
	if err := Import(t.Context(), src, filepath.Join(t.TempDir(), "store"), Options{}); err != nil {
		t.Fatal(err)
	}
	return 2*(allocated()-before) + 68<<20
}

// What a few bytes ask for is refused before it is made, and the error says how
// to have it all the same.
func TestTinyFilesAskForLittle(t *testing.T) {
	limitResources(t)
	yaml := smallBolt["metadata.yaml"]
	many := func(f files, nodes string) files {
		return f.with("metadata.yaml", strings.NewReplacer("num: 4", "num: "+nodes, "num_classes: 3", "num_classes: 0").Replace(yaml)).with("feat.npy", "").with("year.npy", "")
	}
	bolt := func(nodes string) files {
		f := many(smallBolt, nodes)
		y := f["metadata.yaml"]
		return f.with("metadata.yaml", y[:strings.Index(y, "feature_data")]+y[strings.Index(y, "tasks"):])
	}
	coo := smallCOO.with("shape", npy("<i8", "(2,)", []int64{4294967295, 4294967295}))
	bomb := smallCSR.with("attr_shape", npy("<i8", "(2,)", []int64{1 << 16, 1 << 20})).with("attr_indptr", npy("<i8", "(65537,)", make([]int64, 65537))).
		with("attr_indices", npy("<i8", "(0,)", []int64{})).with("attr_data", npy("<f4", "(0,)", []float32{}))
	ogb := smallOGB.with("raw/node-feat.csv.gz", "")
	for name, c := range map[string]struct {
		f    files
		o    Options
		want string // "": it works
	}{
		"edge list":              {files{"e.csv": "0,4294967294\n"}, Options{}, ""},
		"edge list, source":      {files{"e.csv": "0,1\n4294967294,1\n"}, Options{}, ""},
		"as many as it says":     {files{"e.csv": "0,2999999\n"}, Options{NumNodes: 3e6}, ""},
		"allowed":                {files{"e.csv": "0,2999999\n"}, Options{MaxExpansion: 2e6}, ""},
		"zst":                    {files{"e.csv.zst": zst(strings.Repeat("0,1\n", 2e7))}, Options{}, "unpacked"},
		"gz":                     {files{"e.csv.gz": gz(strings.Repeat("0,1\n", 1e7))}, Options{MaxExpansion: 2}, "--max-expansion"},
		"a long line":            {files{"e.csv.gz": gz(strings.Repeat("1", 20<<20))}, Options{}, "longer than"},
		"columns":                {ogb.with("raw/node-label.csv.gz", gz(strings.Repeat("0,", 1<<21)+"0\n")), Options{}, "more than 1048576 columns"},
		"OGB labels":             {ogb.with("raw/num-node-list.csv.gz", gz("4294967295\n")).with("raw/node-label.csv.gz", gz(strings.Repeat("0,", 70000)+"0\n")), Options{}, "labels of 70001 columns for 4294967295 nodes"},
		"OGB nodes":              {ogb.with("raw/num-node-list.csv.gz", gz("4294967295\n")).with("raw/node-label.csv.gz", ""), Options{}, "--num-nodes 4294967295"},
		"Matrix Market":          {files{"a.mtx": strings.Replace(smallMTX, "4 4 5", "4294967295 4294967295 5", 1)}, Options{}, "a.mtx: 4294967295 nodes are far more"},
		"GraphBolt nodes":        {bolt("4294967295"), Options{}, "(graph.nodes.num): 4294967295 nodes"},
		"GraphBolt labels":       {bolt("100000").with("train.npy", npy("<i8", "(1,)", []int64{0})).with("train-labels.npy", npy("|u1", "(1, 1048576)", make([]byte, 1<<20))), Options{}, "labels of 1048576 columns for 100000 nodes"},
		"coordinates":            {files{"a.npz": npz(t, coo)}, Options{}, "a.npz: 4294967295 nodes"},
		"a sparse table":         {files{"a.npz": npz(t, bomb)}, Options{}, "a table of 65536 × 1048576, mostly zeros"},
		"an archive":             {files{"a.npz": npz(t, smallCOO.with("row", npy("<i8", "(5000000,)", make([]int64, 5e6))))}, Options{MaxExpansion: 1}, "unpacked"},
		"NumPy":                  {files{"edges.npy": npy("<i8", "(2, 1)", []int64{0, 4294967294})}, Options{}, "edges.npy offset 136 (value 1): node 4294967294"},
		"classes":                {files{"edges.npy": npy("<i8", "(2, 1)", []int64{0, 1}), "labels.npy": npy("<i8", "(2,)", []int64{16777215, 0})}, Options{}, "16777216 classes, for 2 nodes"},
		"a pipe":                 {smallBolt.with("edges.npy", pipeMark), Options{}, "edges.npy is a named pipe"},
		"a pipe for metadata":    {smallBolt.with("metadata.yaml", pipeMark), Options{}, "metadata.yaml is a named pipe"},
		"a pipe, alone":          {files{"e.csv": pipeMark}, Options{}, "e.csv is a named pipe"},
		"a pipe for a store":     {files{"store.json": pipeMark}, Options{}, "store.json is a named pipe"},
		"a directory":            {smallBolt.with("edges.npy", dirMark), Options{}, "edges.npy is a directory"},
		"a pipe for a directory": {smallOGB.with("split/README", "").with("split/random/train.csv.gz", "").with("split/random/valid.csv.gz", "").with("split/random/test.csv.gz", "").with("split", pipeMark), Options{}, "split is not a directory"},
		"a link out":             {smallNumPy.with("labels.npy", linkMark+"/etc/passwd"), Options{}, "labels.npy: a link on the way leads out"},
		"a link to a device":     {smallNumPy.with("labels.npy", linkMark+"/dev/zero"), Options{FollowLinks: true}, "labels.npy is a device"},
		"a link to nowhere":      {smallNumPy.with("labels.npy", linkMark+"nowhere"), Options{}, "labels.npy: no such file"},
		"a link inside":          {smallNumPy.with("x/l.npy", smallNumPy["labels.npy"]).with("labels.npy", linkMark+"x/l.npy"), Options{}, ""},
		"a metadata line":        {smallBolt.with("metadata.yaml", "graph: *"+strings.Repeat("x", 1e5)), Options{}, "unknown anchor 'xxxx"},
	} {
		said, wrong := tryImport(c.f, filepath.Join(t.TempDir(), "case"), 160<<20, c.o)
		if wrong != nil {
			t.Errorf("%s: %v", name, wrong)
		}
		if c.want == "" != (said == nil) || said != nil && !strings.Contains(said.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, said, c.want)
		}
	}
}

// A link that leads out is followed when that is asked for, and when it is what the
// user names.
func TestLinksAreFollowedWhenAskedFor(t *testing.T) {
	far := filepath.Join(smallNumPy.write(t), "labels.npy")
	f := smallNumPy.with("labels.npy", linkMark+far)
	src := filepath.Join(t.TempDir(), "data")
	if err := f.build(src); err != nil {
		t.Fatal(err)
	}
	checkSmall(t, imported(t, src, Options{FollowLinks: true}))
	named := filepath.Join(t.TempDir(), "named.csv")
	if err := os.Symlink(filepath.Join(files{"e.csv": "0,1\n"}.write(t), "e.csv"), named); err != nil {
		t.Fatal(err)
	}
	if ds := imported(t, named, Options{}); ds.Graph.NumEdges() != 1 {
		t.Error(ds.Graph)
	}
}

// A panic on the way leaves nothing behind either.
func TestPanicLeavesNothingBehind(t *testing.T) {
	parent := t.TempDir()
	src := files{"e.csv": "0,1\n"}.write(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		_ = Import(panicking{t.Context()}, src, filepath.Join(parent, "store"), Options{})
	}()
	graphtest.OnlyContains(t, parent)
}

type panicking struct{ context.Context }

func (panicking) Err() error { panic("for the test") }

// Directories of every format with one to three things wrong. GNNACTOR_ATTACK_CASES
// is how many of each layout are tried; a failure names the seed.
func TestDamagedDataNeverHarms(t *testing.T) {
	count := 10
	if s := os.Getenv("GNNACTOR_ATTACK_CASES"); s != "" {
		var err error
		if count, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	top := t.TempDir()
	limitResources(t)
	all := formatsOfData(t)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		most := mostMemory(t, all[name])
		for seed := range uint64(count) {
			f := mutate(all[name], seed)
			if err := importDamaged(f, filepath.Join(top, "case"), most); err != nil {
				t.Errorf("%s, seed %d: %v", name, seed, err)
			}
		}
	}
}

// FuzzImport does the same with whatever directory the bytes stand for (files.pack).
func FuzzImport(f *testing.F) {
	most := int64(0)
	for _, d := range formatsOfData(f) {
		most = max(most, mostMemory(f, d))
		f.Add(d.pack())
	}
	limitResources(f)
	top := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		d := unpackFiles(b)
		if err := importDamaged(d, filepath.Join(top, "case"), most+4096*int64(len(b))); err != nil {
			t.Fatal(err)
		}
	})
}
