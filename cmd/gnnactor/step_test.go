package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/internal/machinelimits"
	"github.com/gnnactor/gnnactor/pool"
)

// BenchmarkStep is the training step of bench, on a graph of the scale that
// GNNACTOR_BENCH_SCALE names (14 without it).
func BenchmarkStep(b *testing.B) {
	set, err := cpu.Detect()
	if err != nil {
		b.Fatal(err)
	}
	o := benchOptions{scale: 14}
	if s := os.Getenv("GNNACTOR_BENCH_SCALE"); s != "" {
		if o.scale, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	table := make([]float32, machinelimits.RowLen<<o.scale)
	for i := range table {
		table[i] = float32(i%251)/125 - 1
	}
	for _, w := range benchWorkloads(b.Context(), o, table, set) {
		if w.limit != machinelimits.FMA32 || strings.HasPrefix(w.name, "gemm") {
			continue
		}
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", w.name, threads), func(b *testing.B) {
				p := pool.New(threads)
				defer p.Close()
				step, err := w.start(cpu.NewExec(p, set))
				if err != nil {
					b.Fatal(err)
				}
				for range 3 { // memory grows
					if _, err := step(); err != nil {
						b.Fatal(err)
					}
				}
				var did work
				b.ReportAllocs()
				for b.Loop() {
					w, err := step()
					if err != nil {
						b.Fatal(err)
					}
					did.add(w)
				}
				b.ReportMetric(did.flop/b.Elapsed().Seconds()*1e-9, "GFLOP/s")
			})
		}
	}
}
