//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/pool"
)

// A product by the first device, whose operands are uploaded when they are used, or by the processor where there is none.
func ExampleDevice() {
	workers := pool.New(1)
	defer workers.Close()
	exec := cpu.NewExec(workers, cpu.Go)
	a, b, y := cpu.Dense(1, 2, []float32{1, 2}), cpu.Dense(2, 1, []float32{3, 4}), cpu.NewMatrix[float32](1, 1)
	if device, err := cuda.Open(0); err == nil {
		queue := device.NewQueue()
		exec.UseDevice(queue)
		there := cuda.Alloc[float32](queue, 1)
		cpu.Gemm(exec, cpu.Dense(1, 1, there), a, false, b, false, cpu.Epilogue[float32]{})
		cuda.Download(queue, y.Data, there)
		if err := errors.Join(queue.Close(), device.Close()); err != nil {
			fmt.Println(err)
		}
	} else {
		cpu.Gemm(exec, y, a, false, b, false, cpu.Epilogue[float32]{})
	}
	fmt.Println(y.Data)
	// Output: [11]
}
