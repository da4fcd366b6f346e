package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// written is a file of the library's writer: nodes are the types of columns, rows their values, nil a missing one.
func written(t testing.TB, nodes map[string]parquet.Node, rows []map[string]any, o ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	schema := parquet.NewSchema("table", parquet.Group(nodes))
	w := parquet.NewWriter(&b, append([]parquet.WriterOption{schema}, o...)...)
	var names []string
	for name := range nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, row := range rows {
		var r parquet.Row
		for i, name := range names {
			v, level := parquet.ValueOf(row[name]), 0
			if row[name] != nil && nodes[name].Optional() {
				level = 1
			}
			r = append(r, v.Level(0, level, i))
		}
		if _, err := w.WriteRows([]parquet.Row{r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func saved(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "edges.parquet")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// imported lists the edges that Import makes, by the names of their nodes, sorted.
func imported(t testing.TB, o importer.Options) (edges []string, ds graph.Dataset) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "store")
	if err := importer.Import(t.Context(), "", dst, o); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	ds = *s.Dataset()
	for v := range uint32(ds.Graph.NumNodes()) {
		for i := ds.Graph.Indptr[v]; i < ds.Graph.Indptr[v+1]; i++ {
			e := ds.Names.Of(ds.Graph.Indices[i]) + ">" + ds.Names.Of(v)
			if ds.Graph.Weights != nil {
				e += fmt.Sprintf(" w%v", ds.Graph.Weights[i])
			}
			if ds.EdgeTimes != nil {
				e += fmt.Sprintf(" t%d", ds.EdgeTimes[i])
			}
			edges = append(edges, e)
		}
	}
	slices.Sort(edges)
	return edges, ds
}

// Whatever graph is written in whatever layout is the graph that is imported.
func TestAnyLayoutIsTheSameGraph(t *testing.T) {
	type ids struct {
		node parquet.Node
		of   func(i int) (any, string)
	}
	plain := func(f func(i int) any) func(i int) (any, string) {
		return func(i int) (any, string) { return f(i), fmt.Sprint(f(i)) }
	}
	space := uuid.MustParse("6fa459ea-ee8a-3ca4-894e-db77e160355e")
	kinds := []ids{
		{parquet.Int(64), plain(func(i int) any { return int64(i*i)*1e12 - 7 })},
		{parquet.Int(32), plain(func(i int) any { return int32(i) })},
		{parquet.Uint(64), plain(func(i int) any { return math.MaxUint64 - uint64(i) })},
		{parquet.Leaf(parquet.DoubleType), func(i int) (any, string) { return float64(i) * 1e7, fmt.Sprint(i * 1e7) }},
		{parquet.String(), plain(func(i int) any { return fmt.Sprintf("n, \"%d\"\né", i) + strings.Repeat("x", i%3) })},
		{parquet.UUID(), func(i int) (any, string) {
			id := uuid.NewSHA1(space, []byte{byte(i)})
			return [16]byte(id), id.String()
		}},
	}
	codecs := []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Zstd, &parquet.Lz4Raw, &parquet.Brotli}
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 5))
		id := kinds[seed%6]
		node := parquet.Compressed(id.node, codecs[r.IntN(len(codecs))])
		encodings := []encoding.Encoding{&parquet.Plain, &parquet.RLEDictionary}
		switch id.node.Type().Kind() {
		case parquet.Int64, parquet.Int32:
			encodings = append(encodings, &parquet.DeltaBinaryPacked)
		case parquet.ByteArray:
			encodings = append(encodings, &parquet.DeltaLengthByteArray, &parquet.DeltaByteArray)
		case parquet.Double:
			encodings = append(encodings, &parquet.ByteStreamSplit)
		}
		node = parquet.Encoded(node, encodings[r.IntN(len(encodings))])
		if r.IntN(2) == 0 {
			node = parquet.Optional(node)
		}
		unit := []parquet.TimeUnit{parquet.Millisecond, parquet.Microsecond, parquet.Nanosecond}[r.IntN(3)]
		perSecond := int64(time.Second / unit.Duration())
		nodes := map[string]parquet.Node{
			"from": node, "to": node,
			"weight": parquet.Leaf(parquet.FloatType), "when": parquet.Timestamp(unit),
			"list": parquet.Repeated(parquet.Int(32)), // which nothing asks for
		}
		var rows []map[string]any
		var want []string
		for range 1 + r.IntN(700) {
			s, sName := id.of(r.IntN(40))
			d, dName := id.of(r.IntN(40))
			w, at := r.IntN(9), r.Int64N(1<<31)-1<<30
			rows = append(rows, map[string]any{"from": s, "to": d, "weight": float32(w), "when": at * perSecond})
			want = append(want, fmt.Sprintf("%s>%s w%d t%d", sName, dName, w, at))
		}
		b := written(t, nodes, rows, parquet.PageBufferSize(64<<r.IntN(10)), parquet.MaxRowsPerRowGroup(int64(50+r.IntN(600))), parquet.DataPageVersion(1+r.IntN(2)))
		got, _ := imported(t, importer.Options{Edges: saved(t, b), Time: "when"})
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d edges, want %d: %.200q, want %.200q", seed, len(got), len(want), got, want)
		}
	}
}

// A table of nodes makes the same store as the table of text that pandas writes of it.
func TestNodesAsInText(t *testing.T) {
	text := filepath.Join(t.TempDir(), "nodes.csv")
	rows := []map[string]any{
		{"id": "anna", "age": 5.5, "city": "Rome", "ok": true, "label": "spam", "split": "train", "price": int64(-1250), "day": int32(1), "old": deprecated.Int96{0, 0, 2440589}, "__index_level_0__": int64(7)},
		{"id": "bob", "age": nil, "city": nil, "ok": false, "label": nil, "split": nil, "price": int64(5), "day": int32(-1), "old": deprecated.Int96{1, 0, 2440588}, "__index_level_0__": int64(8)},
		{"id": "carl", "age": math.NaN(), "city": "Oslo", "ok": true, "label": "ham", "split": "test", "price": int64(100), "day": int32(0), "old": deprecated.Int96{0, 0, 2440588}, "__index_level_0__": int64(9)},
	}
	b := written(t, map[string]parquet.Node{
		"id": parquet.String(), "age": parquet.Optional(parquet.Leaf(parquet.DoubleType)), "city": parquet.Optional(parquet.Encoded(parquet.String(), &parquet.RLEDictionary)),
		"ok": parquet.Leaf(parquet.BooleanType), "label": parquet.Optional(parquet.String()), "split": parquet.Optional(parquet.String()),
		"price": parquet.Decimal(2, 12, parquet.Int64Type), "day": parquet.Date(), "old": parquet.Leaf(parquet.Int96Type), "__index_level_0__": parquet.Int(64),
	}, rows)
	err := os.WriteFile(text, []byte("age,city,day,id,label,ok,old,price,split\n5.5,Rome,1970-01-02,anna,spam,True,1970-01-02 00:00:00,-12.50,train\n"+
		",,1969-12-31,bob,,False,1970-01-01 00:00:00.000000001,0.05,\n,Oslo,1970-01-01,carl,ham,True,1970-01-01 00:00:00,1.00,test\n"), 0o666)
	if err != nil {
		t.Fatal(err)
	}
	edges := filepath.Join(t.TempDir(), "edges.csv")
	if err := os.WriteFile(edges, []byte("src,dst\nanna,bob\nbob,carl\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, features := range [][]string{nil, {"age", "price", "ok", "city", "day", "old"}} {
		_, want := imported(t, importer.Options{Edges: edges, Nodes: text, Features: features})
		_, got := imported(t, importer.Options{Edges: edges, Nodes: saved(t, b), Features: features})
		if got.Fingerprint != want.Fingerprint || !bytes.Equal(got.Recipe, want.Recipe) {
			t.Errorf("features %q: %s, want %s", features, got.Recipe, want.Recipe)
		}
	}
}

// Ids that are floats or decimals are the whole numbers that they are; the largest that are exact are texts' neighbours still.
func TestIDsOfFloats(t *testing.T) {
	nodes := map[string]parquet.Node{"src": parquet.Leaf(parquet.DoubleType), "dst": parquet.Leaf(parquet.FloatType), "from": parquet.Decimal(2, 12, parquet.Int64Type)}
	b := written(t, nodes, []map[string]any{
		{"src": float64(1<<53 - 1), "dst": float32(1<<24 - 1), "from": int64(700)},
		{"src": float64(7), "dst": float32(1), "from": int64(100)},
	})
	if got, _ := imported(t, importer.Options{Edges: saved(t, b), Src: "src"}); !slices.Equal(got, []string{"7>1", "9007199254740991>16777215"}) {
		t.Errorf("%q", got)
	}
	if got, _ := imported(t, importer.Options{Edges: saved(t, b), Src: "from"}); !slices.Equal(got, []string{"1>1", "7>16777215"}) {
		t.Errorf("%q", got)
	}
}

func TestRefused(t *testing.T) {
	id := parquet.Int(64)
	edges := func(n int) (rows []map[string]any) {
		for i := range n {
			rows = append(rows, map[string]any{"src": int64(i), "dst": int64(0), "x": nil})
		}
		return rows
	}
	plain := written(t, map[string]parquet.Node{"src": id, "dst": id}, edges(100))
	floats := func(of parquet.Type, last any) []byte {
		return written(t, map[string]parquet.Node{"src": parquet.Leaf(of), "dst": id}, []map[string]any{{"src": reflect.Zero(reflect.TypeOf(last)).Interface(), "dst": int64(1)}, {"src": last, "dst": int64(1)}})
	}
	missing := edges(3)
	missing[2]["src"] = nil
	for name, c := range map[string]struct {
		b    []byte
		o    importer.Options
		want string
	}{
		"another name":             {written(t, map[string]parquet.Node{"citing": id, "dst": id}, []map[string]any{{"citing": int64(1), "dst": int64(2)}}), importer.Options{}, "which is the source"},
		"an id is missing":         {written(t, map[string]parquet.Node{"src": parquet.Optional(id), "dst": id}, missing), importer.Options{}, "row 3: a node id is missing"},
		"a list":                   {written(t, map[string]parquet.Node{"src": id, "dst": id, "x": parquet.Repeated(id)}, edges(1)), importer.Options{EdgeFeatures: []string{"x"}}, "--feature"},
		"a time of day":            {written(t, map[string]parquet.Node{"src": id, "dst": id, "x": parquet.Optional(parquet.Time(parquet.Millisecond))}, edges(1)), importer.Options{Weight: "x"}, "not read"},
		"a large double":           {floats(parquet.DoubleType, float64(1<<53)), importer.Options{}, "row 2: the id 9.007199254740992e+15 is a floating-point number"},
		"a large float":            {floats(parquet.FloatType, float32(1<<24)), importer.Options{}, "row 2: the id 1.6777216e+07 is a floating-point number"},
		"an id that is NaN":        {floats(parquet.DoubleType, math.NaN()), importer.Options{}, "row 2: a node id is missing"},
		"text":                     {[]byte("src,dst\n1,2\n3,4\n"), importer.Options{}, "no Parquet"},
		"shortened":                {plain[:len(plain)-9], importer.Options{}, "fetch it again"},
		"numbers said to be lists": {annotated(t, plain), importer.Options{}, "damaged"},
		"encrypted":                {append(slices.Clone(plain[:len(plain)-4]), "PARE"...), importer.Options{}, "without encryption"},
		"a footer too long":        {append(slices.Clone(plain[:len(plain)-8]), 255, 255, 255, 0, 'P', 'A', 'R', '1'), importer.Options{}, "longer than the file"},
	} {
		c.o.Edges = saved(t, c.b)
		err := importer.Import(t.Context(), "", filepath.Join(t.TempDir(), "s"), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "edges.parquet") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// annotated is a file whose columns are said to be lists, which one value a row is not.
func annotated(t testing.TB, b []byte) []byte {
	t.Helper()
	n := len(b) - 8 - int(binary.LittleEndian.Uint32(b[len(b)-8:]))
	var m format.FileMetaData
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), b[n:len(b)-8], &m); err != nil {
		t.Fatal(err)
	}
	for i := range m.Schema[1:] {
		m.Schema[1+i].LogicalType.Value = new(format.ListType)
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &m)
	if err != nil {
		t.Fatal(err)
	}
	b = append(slices.Clone(b[:n]), footer...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(footer))), magic...)
}

// budget allows so many bytes.
func budget(bytes int64) func(int64, string) error {
	return func(n int64, what string) error {
		if bytes -= n; bytes < 0 {
			return fmt.Errorf("%s: too much", what)
		}
		return nil
	}
}

// rowsOf reads all of a file.
func rowsOf(b []byte, columns []int) (rows int, err error) {
	d, err := open(bytes.NewReader(b), int64(len(b)), budget(1<<26))
	if err != nil {
		return 0, err
	}
	names, several, _ := d.Columns()
	if columns == nil {
		for i := range min(len(names), 8) {
			if !several[i] {
				columns = append(columns, i)
			}
		}
	}
	in, err := d.Read(columns)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	var text []byte
	var ends []uint32
	for ; rows < 1<<16; rows++ {
		if text, ends, err = in.Next(text[:0], ends[:0]); err != nil {
			break
		}
		if len(ends) != len(columns) || len(columns) > 0 && int(ends[len(ends)-1]) != len(text) {
			return rows, fmt.Errorf("%d fields of %d columns", len(ends), len(columns))
		}
	}
	return rows, err
}

// Any bytes are rows or an error, and take memory as they are long.
func FuzzParquet(f *testing.F) {
	for _, codec := range []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Zstd} {
		node := func(n parquet.Node) parquet.Node { return parquet.Optional(parquet.Compressed(n, codec)) }
		nodes := map[string]parquet.Node{"a": node(parquet.Int(64)), "b": node(parquet.Encoded(parquet.String(), &parquet.RLEDictionary)), "c": node(parquet.Decimal(2, 30, parquet.FixedLenByteArrayType(13)))}
		var rows []map[string]any
		for i := range 5 {
			rows = append(rows, map[string]any{"a": int64(i), "b": strings.Repeat("x", i), "c": [13]byte{byte(i)}})
		}
		f.Add(written(f, nodes, append(rows, map[string]any{})))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 1<<16 {
			rowsOf(b, nil)
		}
	})
}
