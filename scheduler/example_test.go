package scheduler_test

import (
	"fmt"

	"github.com/gnnactor/gnnactor/scheduler"
)

// What a job of a million nodes takes, and what is made smaller to fit a limit.
func ExampleFit() {
	job := scheduler.Sizes{
		Nodes: 1 << 20, Edges: 15 << 20, FeatureBytes: 512 << 20, TrainNodes: 196_615,
		InDim: 128, OutDim: 47, Hidden: 256, Layers: 3, Sampler: "neighbor", Fanouts: []int{15, 10, 5},
		BatchSize: 1024, Micro: 1, Parameters: 200_000, Kernels: "avx2", Optimizer: "adamw",
	}
	free := scheduler.Build(job, scheduler.Request{Threads: 8})
	tight := scheduler.Fit(job, scheduler.Request{Threads: 8}, scheduler.Limit{Bytes: free.PeakBytes - 1, From: "my limit"})
	fmt.Println(free.Batches, "batches an epoch on", free.Threads, "threads")
	fmt.Println(tight.PeakBytes < free.PeakBytes, tight.Fitted != "", tight.Check())
	// Output:
	// 193 batches an epoch on 8 threads
	// true true <nil>
}
