package importer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// layout is a way of writing a table of edges.
type layout struct {
	json, header, index, decimalComma bool
	sep                               string // " ": any number of spaces
	eol, encoding, pack               string
	columns                           []string // what is in each: src, dst, weight, time, type
	names                             []string
	days                              bool // times are written as dates
}

// writtenEdge is an edge of a table. Weights are eighths.
type writtenEdge struct {
	src, dst string
	weight   int
	time     int64
}

// idKinds are ways of calling node i.
var idKinds = []struct {
	name string
	id   func(i int) string
}{
	{"numbers", strconv.Itoa},
	{"numbers with gaps", func(i int) string { return fmt.Sprint(i * i) }},
	{"64 bits", func(i int) string { return fmt.Sprint(int64(i*i)*1e15 - 7) }},
	{"beyond 64 bits", func(i int) string { return fmt.Sprint(i) + "00000000000000000000" }},
	{"UUIDs", func(i int) string {
		x := scattered(uint64(i) + 1)
		return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", x>>32, x>>16&0xffff, x&0xfff, x>>20&0xfff, x>>12)
	}},
	{"words", func(i int) string { return "n" + fmt.Sprintf("%x", i*77) }},
	{"texts", func(i int) string { return fmt.Sprintf("n, \"%d\"\n;é|\t語😀 ", i) + strings.Repeat("x", i%3) }},
}

// scattered is a bijection that leaves no pattern (SplitMix64).
func scattered(v uint64) uint64 {
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// drawLayout returns a layout for ids, which are plain when they hold nothing that separates, and the options that it needs.
func drawLayout(r *rand.Rand, weights, times bool) (l layout, o Options) {
	l = layout{
		json: r.IntN(4) == 0, header: r.IntN(3) > 0, sep: []string{",", ";", "\t", "|", " "}[r.IntN(5)],
		eol: []string{"\n", "\r\n"}[r.IntN(2)], encoding: []string{"", "", "mark", "little", "big"}[r.IntN(5)], pack: []string{"", "", ".gz", ".zst"}[r.IntN(4)],
		days: r.IntN(2) == 0,
	}
	l.index = l.header && !l.json && r.IntN(3) == 0
	l.decimalComma = !l.json && l.sep != "," && r.IntN(3) == 0
	o = Options{DecimalComma: l.decimalComma}
	l.columns = []string{"src", "dst"}
	if weights {
		l.columns = append(l.columns, "weight")
	}
	if times {
		l.columns = append(l.columns, "time")
	}
	if l.header || l.json {
		l.columns = append(l.columns, "type")
		r.Shuffle(len(l.columns), func(i, j int) { l.columns[i], l.columns[j] = l.columns[j], l.columns[i] })
		said := r.IntN(3) == 0 // names that nobody knows
		for i, c := range l.columns {
			known := map[string][]string{"src": {"src", "Source", "from", "START_ID"}, "dst": {"dst", "Target", "to", "END_ID"}, "weight": {"weight", "Weight", "w"}, "time": {"time", "timestamp"}, "type": {"type", "kind", "Label"}}[c]
			name := known[r.IntN(len(known))]
			if flag := map[string]*string{"src": &o.Src, "dst": &o.Dst, "weight": &o.Weight, "time": &o.Time}[c]; said && flag != nil {
				name = fmt.Sprintf("column %d", i)
				*flag = name
			}
			l.names = append(l.names, name)
		}
		if l.header && !l.json {
			o.Header = []string{"", "yes"}[r.IntN(2)]
		}
		return l, o
	}
	o.Header = "no"
	if times && !weights || r.IntN(2) == 0 {
		l.columns = append(l.columns, "type")
		r.Shuffle(len(l.columns), func(i, j int) { l.columns[i], l.columns[j] = l.columns[j], l.columns[i] })
		for i, c := range l.columns {
			if flag := map[string]*string{"src": &o.Src, "dst": &o.Dst, "weight": &o.Weight, "time": &o.Time}[c]; flag != nil {
				*flag = fmt.Sprint(i + 1)
			}
		}
	}
	return l, o
}

// write writes edges into a new file, and returns where it is.
func (l *layout) write(t *testing.T, r *rand.Rand, edges []writtenEdge) string {
	var b strings.Builder
	quote := func(s string) string {
		if s == "" && l.sep == " " || r.IntN(3) == 0 || strings.ContainsAny(s, ",;\t|\"\n ") {
			return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
		}
		return s
	}
	line := func(fields []string) {
		for k, f := range fields {
			if k > 0 {
				b.WriteString(l.sep)
				if l.sep == " " {
					b.WriteString(strings.Repeat(" ", r.IntN(2)))
				}
			}
			b.WriteString(quote(f))
		}
		if b.WriteString(l.eol); r.IntN(50) == 0 {
			b.WriteString(l.eol)
		}
	}
	if !l.json && r.IntN(4) == 0 {
		b.WriteString("# made by a test, not by hand" + l.eol)
	}
	if l.header && !l.json {
		if names := l.names; l.index && l.sep != " " {
			line(append([]string{""}, names...))
		} else { // R names the rows, but not their column
			line(names)
		}
	}
	value := func(e writtenEdge, column string) string {
		switch column {
		case "src":
			return e.src
		case "dst":
			return e.dst
		case "weight":
			s := strconv.FormatFloat(float64(e.weight)/8, 'g', -1, 64)
			if l.decimalComma {
				s = strings.Replace(s, ".", ",", 1)
			}
			return s
		case "time":
			if l.days {
				return time.Unix(e.time, 0).UTC().Format([]string{time.RFC3339, "2006-01-02 15:04:05"}[r.IntN(2)])
			}
			return fmt.Sprint(e.time)
		}
		return []string{"KNOWS", "likes; or, not", "x"}[r.IntN(3)]
	}
	for i, e := range edges {
		if l.json {
			var members []string
			for k, c := range l.columns {
				v := value(e, c)
				if _, number := parseNumber([]byte(v)); c == "weight" || number && r.IntN(2) == 0 {
					members = append(members, fmt.Sprintf("%q:%s", l.names[k], v))
				} else if v = jsonQuoted(v); c != "type" || r.IntN(4) > 0 {
					members = append(members, fmt.Sprintf("%q: %s", l.names[k], v))
				} else if r.IntN(2) == 0 {
					members = append(members, fmt.Sprintf("%q : null", l.names[k]))
				}
			}
			r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			b.WriteString("{" + strings.Join(members, []string{",", " , "}[r.IntN(2)]) + "}" + l.eol)
			continue
		}
		var fields []string
		if l.index {
			fields = append(fields, fmt.Sprint(i))
		}
		for _, c := range l.columns {
			fields = append(fields, value(e, c))
		}
		line(fields)
	}
	text := b.String()
	if r.IntN(3) == 0 {
		text = strings.TrimRight(text, "\r\n")
	}
	raw := []byte(text)
	switch l.encoding {
	case "mark":
		raw = append([]byte("\xef\xbb\xbf"), raw...)
	case "little", "big":
		raw = nil
		for _, u := range append([]uint16{0xfeff}, utf16.Encode([]rune(text))...) {
			pair := []byte{byte(u), byte(u >> 8)}
			if l.encoding == "big" {
				pair[0], pair[1] = pair[1], pair[0]
			}
			raw = append(raw, pair...)
		}
	}
	switch l.pack {
	case ".gz":
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		w.Write(raw)
		w.Close()
		raw = z.Bytes()
	case ".zst":
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		raw = w.EncodeAll(raw, nil)
	}
	path := filepath.Join(t.TempDir(), map[bool]string{true: "e.jsonl", false: []string{"e.csv", "e.tsv", "e.txt"}[r.IntN(3)]}[l.json]+l.pack)
	if err := os.WriteFile(path, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func jsonQuoted(s string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, "\n", `\n`, "\t", `\t`, "é", `\u00e9`, "😀", `\ud83d\ude00`).Replace(s) + `"`
}

// Whatever graph is written in whatever layout is the graph that is imported, among the nodes that edges name or as many as
// are asked for; with both directions of each edge, where that is asked for.
func TestAnyLayoutIsTheSameGraph(t *testing.T) {
	t.Parallel()
	for seed := range uint64(96) {
		r := rand.New(rand.NewPCG(seed, 3))
		kind := idKinds[r.IntN(len(idKinds))]
		weights, times := r.IntN(2) == 0, r.IntN(3) == 0
		l, o := drawLayout(r, weights, times)
		nodes := 2 + r.IntN(60)
		edges := make([]writtenEdge, 10+r.IntN([]int{40, 400, 20000}[seed%32/15]))
		named := map[string]bool{}
		for i := range edges {
			e := writtenEdge{kind.id(r.IntN(nodes)), kind.id(r.IntN(nodes)), r.IntN(100), r.Int64N(2e9)}
			if (!l.header || l.sep == " ") && !l.json { // records by which columns are counted are lines
				e.src, e.dst = strings.ReplaceAll(e.src, "\n", " "), strings.ReplaceAll(e.dst, "\n", " ")
			}
			named[e.src], named[e.dst] = true, true
			edges[i] = e
		}
		wantNodes := len(named)
		if kind.name == "numbers" && r.IntN(2) == 0 {
			o.NumNodes = nodes + r.IntN(9)
			wantNodes = o.NumNodes
		}
		o.Undirected = r.IntN(4) == 0
		var want []string
		seen := map[string]bool{}
		add := func(src, dst string, e writtenEdge) {
			if o.Undirected && seen[src+">"+dst] {
				return
			}
			seen[src+">"+dst] = true
			s := src + ">" + dst
			if weights {
				s += fmt.Sprintf(" w%v", float32(e.weight)/8)
			}
			if times {
				s += fmt.Sprintf(" t%d", e.time)
			}
			want = append(want, s)
		}
		for _, e := range edges {
			if add(e.src, e.dst, e); o.Undirected && e.src != e.dst {
				add(e.dst, e.src, e)
			}
		}
		slices.Sort(want)
		path := l.write(t, r, edges)
		dst := filepath.Join(t.TempDir(), "store")
		if err := Import(t.Context(), path, dst, o); err != nil {
			t.Errorf("seed %d, %s: %+v %+v: %v", seed, kind.name, l, o, err)
			continue
		}
		ds := opened(t, dst).Dataset()
		if got := namedEdges(ds); !slices.Equal(got, want) || ds.Graph.NumNodes() != wantNodes {
			t.Errorf("seed %d, %s: %+v: %d edges among %d nodes, want %d and %d: %.200q, want %.200q", seed, kind.name, l, len(got), ds.Graph.NumNodes(), len(want), wantNodes, got, want)
		}
	}
}
