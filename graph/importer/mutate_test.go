//go:build unix

package importer

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
)

// A directory with one entry that is no file has one of these in front of its
// content: of a link, where it leads.
const (
	linkMark = "\x00link:"
	pipeMark = "\x00pipe"
	dirMark  = "\x00directory"
)

// build writes a directory; what cannot be written is left out.
func (f files) build(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, name := range f.names() {
		path, content := filepath.Join(dir, filepath.FromSlash(name)), f[name]
		if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) || len(name) > 100 {
			continue
		}
		_ = os.MkdirAll(filepath.Dir(path), 0o777)
		to, link := strings.CutPrefix(content, linkMark)
		switch {
		case link:
			_ = os.Symlink(to, path)
		case content == pipeMark:
			_ = syscall.Mkfifo(path, 0o666)
		case content == dirMark:
			_ = os.Mkdir(path, 0o777)
		default:
			_ = os.WriteFile(path, []byte(content), 0o666)
		}
	}
	return nil
}

func (f files) names() []string {
	var names []string
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// pack and unpackFiles turn a directory into the bytes of a fuzz target and back:
// per entry the length of its name, the name, the length of its content, the
// content. Any bytes are a directory.
func (f files) pack() []byte {
	var b []byte
	for _, name := range f.names() {
		b = append(append(b, byte(len(name))), name...)
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(f[name]))), f[name]...)
	}
	return b
}

func unpackFiles(b []byte) files {
	f := files{}
	take := func(n int) string {
		n = min(n, len(b))
		s := string(b[:n])
		b = b[n:]
		return s
	}
	for len(b) > 0 && len(f) < 32 {
		name := take(1 + int(b[0]))[1:]
		length := append([]byte(take(4)), 0, 0, 0, 0)
		f[name] = take(int(binary.LittleEndian.Uint32(length)))
	}
	return f
}

// formatsOfData returns a valid directory of every format and layout.
func formatsOfData(t testing.TB) map[string]files {
	adj := files{}
	for name, content := range smallCSR {
		if name != "format" {
			adj["adj_"+name] = content
			adj["attr_"+name] = content
		}
	}
	adj["labels"], adj["train_mask"] = smallNumPy["labels.npy"], smallNumPy["valid.npy"]
	all := map[string]files{
		"numpy": smallNumPy, "ogb": smallOGB, "graphbolt": smallBolt, "table": smallList,
		"ogb with times": smallOGB.with("raw/node_year.csv.gz", gz("2010\n2011\n2012\n2013\n")),
		"graphbolt csv": smallBolt.with("edges.npy", "").with("e.csv", "3,0\n0,1\n1,0\n2,2\n1,3\n").
			with("metadata.yaml", strings.Replace(smallBolt["metadata.yaml"], "format: numpy, path: edges.npy", "format: csv, path: e.csv", 1)),
		"graphbolt multi": smallBolt.with("train-labels.npy", npy("|u1", "(2, 3)", []byte{1, 0, 1, 0, 1, 1})).with("valid-labels.npy", npy("|u1", "(1, 3)", []byte{1, 0, 1})),
		"plain list":      {"e.csv": "source,target,time\n3,0,17\n0,1,18\n1,0,19\n2,2,20\n1,3,21\n", "node_times.npy": npy("<i8", "(4,)", []int64{1, 2, 3, 4})},
		"list gz":         {"e.tsv.gz": gz("3\t0\n0\t1\n1\t0\n2\t2\n1\t3\n")},
		"csc": {"indptr.npy": npy("<i8", "(5,)", []int64{0, 2, 3, 4, 5}), "indices.npy": npy("<i4", "(5,)", []int32{3, 1, 0, 2, 1}),
			"labels.npy": npy("|u1", "(4, 3)", make([]byte, 12)), "edge_times.npy": npy("<i8", "(5,)", make([]int64, 5))},
		"npz csr": sparseFiles("a.npz", npz(t, smallCSR), true), "npz coo": sparseFiles("a.npz", npz(t, smallCOO), false),
		"npz csc": {"a.npz": npz(t, smallCSC)}, "npz adj": {"a.npz": npz(t, adj)},
		"mtx": sparseFiles("a.mtx", smallMTX, false), "mtx zst": {"a.mtx.zst": zst(smallMTX)},
	}
	store := files{}
	dir := created(t, graphtest.Everything(t))
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		store[e.Name()] = string(b)
	}
	all["store"] = store
	return all
}

// mutate returns a directory that one to three changes made of f; the same seed
// makes the same.
func mutate(f files, seed uint64) files {
	r := rand.New(rand.NewPCG(seed, 7))
	out := f.with("", "")
	for range 1 + r.IntN(3) {
		names := out.names()
		if len(names) == 0 {
			break
		}
		name := names[r.IntN(len(names))]
		switch r.IntN(16) {
		case 0:
			delete(out, name)
		case 1:
			out[name] = out[names[r.IntN(len(names))]]
		case 2:
			out[name] = []string{pipeMark, dirMark, linkMark + "/etc/passwd", linkMark + "/dev/zero", linkMark + filepath.Base(name), linkMark + "nowhere"}[r.IntN(6)]
		case 3:
			out[name] = mutateBytes(out[name], r)
		default:
			out[name] = mutateInside(name, out[name], r)
		}
	}
	return out
}

// mutateInside changes what a compressed file holds.
func mutateInside(name, content string, r *rand.Rand) string {
	switch filepath.Ext(name) {
	case ".gz":
		if z, err := gzip.NewReader(strings.NewReader(content)); err == nil {
			if b, err := io.ReadAll(io.LimitReader(z, 1<<22)); err == nil {
				return gz(mutateBytes(string(b), r))
			}
		}
	case ".zst":
		if z, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(1<<22)); err == nil {
			defer z.Close()
			if b, err := z.DecodeAll([]byte(content), nil); err == nil {
				return zst(mutateBytes(string(b), r))
			}
		}
	case ".npz":
		if s, ok := mutateArchive(content, r); ok {
			return s
		}
	}
	return mutateBytes(content, r)
}

func mutateArchive(content string, r *rand.Rand) (string, bool) {
	z, err := zip.NewReader(strings.NewReader(content), int64(len(content)))
	if err != nil || len(z.File) == 0 {
		return "", false
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	chosen := r.IntN(len(z.File))
	for i, f := range z.File {
		in, err := f.Open()
		if err != nil {
			return "", false
		}
		member, err := io.ReadAll(io.LimitReader(in, 1<<22))
		if err != nil {
			return "", false
		}
		if i == chosen {
			member = []byte(mutateBytes(string(member), r))
		}
		out, err := w.CreateHeader(&zip.FileHeader{Name: f.Name, Method: f.Method})
		if err == nil {
			_, err = out.Write(member)
		}
		if err != nil {
			return "", false
		}
	}
	return b.String(), w.Close() == nil
}

var (
	digits  = regexp.MustCompile(`[0-9]+`)
	numbers = []string{"0", "1", "2", "5", "255", "65536", "70000", "1048576", "16777215", "2147483648", "4294967294", "4294967295", "9223372036854775807", "-1", "18446744073709551615", "1e30", "nan"}
)

// mutateBytes changes a file: numbers in text and in binary, single bits, its
// length, or a piece of it many times over.
func mutateBytes(s string, r *rand.Rand) string {
	b := []byte(s)
	if len(b) == 0 {
		return numbers[r.IntN(len(numbers))]
	}
	switch r.IntN(7) {
	case 0, 1: // a number in the text, or in the dictionary of a .npy
		all := digits.FindAllIndex(b, 64)
		if len(all) == 0 {
			break
		}
		at := all[r.IntN(len(all))]
		number := numbers[r.IntN(len(numbers))]
		out := s[:at[0]] + number + s[at[1]:]
		if strings.HasPrefix(s, "\x93NUMPY") { // its length stays
			if pad := strings.Index(out, strings.Repeat(" ", 24)); pad > 0 && len(out) > len(s) && len(out)-len(s) < 24 {
				out = out[:pad] + out[pad+len(out)-len(s):]
			}
		}
		return out
	case 2: // a value
		width := []int{1, 4, 8}[r.IntN(3)]
		if at := len(b) - width*(1+r.IntN(8)); at >= 0 {
			v := []uint64{0, 1, 1 << 20, 1<<31 - 1, 1<<32 - 2, 1<<32 - 1, 1<<63 - 1, 1<<64 - 1}[r.IntN(8)]
			copy(b[at:at+width], binary.LittleEndian.AppendUint64(nil, v))
		}
	case 3:
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	case 4:
		b = b[:r.IntN(len(b))]
	case 5:
		at := r.IntN(len(b))
		end := at + 1 + r.IntN(len(b)-at)
		return s[:at] + strings.Repeat(s[at:end], 1+r.IntN(1<<uint(r.IntN(12)))) + s[end:]
	case 6: // a table that fits its shape, of zeros
		rows, cols := 1<<r.IntN(8), 1<<r.IntN(11)
		return npy("|u1", fmt.Sprintf("(%d, %d)", rows, cols), make([]byte, rows*cols))
	}
	return string(b)
}
