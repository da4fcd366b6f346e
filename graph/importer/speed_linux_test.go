package importer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// BenchmarkEdges imports a table of GNNACTOR_IMPORT_EDGES random edges (100,000 without it) among a tenth as
// many nodes, which are called by numbers from 0, by sparse ones of 64 bits, or by UUIDs; it tells how
// many edges a second, how much time of processors an edge, and how much memory at most.
func BenchmarkEdges(b *testing.B) {
	edges, _ := strconv.Atoi(os.Getenv("GNNACTOR_IMPORT_EDGES"))
	if edges == 0 {
		edges = 100_000
	}
	nodes := uint64(max(edges/10, 1))
	for _, ids := range []struct {
		name string
		id   func(b []byte, v uint64) []byte
	}{
		{"numbers", func(b []byte, v uint64) []byte { return strconv.AppendUint(b, v, 10) }},
		{"sparse", func(b []byte, v uint64) []byte { return strconv.AppendUint(b, scattered(v)>>1, 10) }},
		{"uuids", func(b []byte, v uint64) []byte {
			x := hex.AppendEncode(nil, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, scattered(v)), scattered(^v)))
			for i, at := range []int{8, 12, 16, 20, 32} {
				from := []int{0, 8, 12, 16, 20}[i]
				b = append(append(b, x[from:at]...), '-')
			}
			return b[:len(b)-1]
		}},
	} {
		b.Run(ids.name, func(b *testing.B) {
			dir := b.TempDir()
			path := filepath.Join(dir, "edges.csv")
			if err := writeRandomEdges(path, edges, nodes, ids.id); err != nil {
				b.Fatal(err)
			}
			os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // the peak begins anew
			began, used := time.Now(), processorTime()
			b.ResetTimer()
			for range b.N {
				if err := Import(b.Context(), path, filepath.Join(dir, "store"), Options{Overwrite: true}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(edges)*float64(b.N)/time.Since(began).Seconds()/1e6, "Medges/s")
			b.ReportMetric(float64((processorTime()-used).Nanoseconds())/float64(edges)/float64(b.N), "cpu-ns/edge")
			b.ReportMetric(float64(peakMemory(b))/(1<<20), "MiB-peak")
		})
	}
}

func writeRandomEdges(path string, edges int, nodes uint64, id func(b []byte, v uint64) []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	w.WriteString("src,dst\n")
	r := rand.New(rand.NewPCG(1, 2))
	var line []byte
	for range edges {
		line = append(id(line[:0], r.Uint64N(nodes)), ',')
		line = append(id(line, r.Uint64N(nodes)), '\n')
		w.Write(line)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync() // or the import waits for it
}

// peakMemory returns the process's largest resident memory in bytes.
func peakMemory(t testing.TB) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	kib, err := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// processorTime returns what the process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
