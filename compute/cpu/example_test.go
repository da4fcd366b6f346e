package cpu_test

import (
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
)

// A layer by hand: the mean of the neighbours' rows, times a matrix, plus a bias.
func ExampleAggregate() {
	workers := pool.New(2)
	defer workers.Close()
	set, err := cpu.Detect()
	if err != nil {
		log.Fatal(err)
	}
	exec := cpu.NewExec(workers, set)

	block := &graph.Block{NumDst: 2, NumSrc: 3, Indptr: []int64{0, 2, 3}, Indices: []uint32{1, 2, 0}}
	x := cpu.Dense(3, 2, []float32{1, 2, 3, 4, 5, 6})
	mean := cpu.NewMatrix[float32](2, 2)
	cpu.Aggregate(exec, mean, block, cpu.Source[float32]{Dense: x}, cpu.AggregateOptions[float32]{Reduce: cpu.Mean})
	w := cpu.Dense(2, 1, []float32{10, 1})
	y := cpu.NewMatrix[float32](2, 1)
	cpu.Gemm(exec, y, mean, false, w, false, cpu.Epilogue[float32]{Bias: []float32{0.5}})
	fmt.Println(mean.Data)
	fmt.Println(y.Data)
	// Output:
	// [4 5 1 2]
	// [45.5 12.5]
}
