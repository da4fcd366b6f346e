//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/pool"
)

// A product on the first device, if there is one. Importing the package alone lets a run have a device:
// Config.Execution.Device of package runtime.
func Example() {
	d, err := cuda.Open(0)
	if err != nil {
		fmt.Println("none:", errors.Is(err, devices.ErrNumber), err)
		return
	}
	defer d.Close()
	q := d.NewQueue()
	defer q.Close()
	p := pool.New(1)
	defer p.Close()
	x := cpu.NewExec(p, cpu.Go)
	x.UseDevice(q)
	a, b, c := cuda.Alloc[float32](q, 4), cuda.Alloc[float32](q, 4), cuda.Alloc[float32](q, 4)
	cuda.Upload(q, a, []float32{1, 2, 3, 4})
	cuda.Upload(q, b, []float32{0, 1, 1, 0})
	on := func(data []float32) cpu.Matrix[float32] {
		return cpu.Matrix[float32]{Rows: 2, Cols: 2, Stride: 2, Data: data}
	}
	cpu.Gemm(x, on(c), on(a), false, on(b), false, cpu.Epilogue[float32]{})
	got := make([]float32, 4)
	cuda.Download(q, got, c)
	if err := q.Wait(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(got) // [2 1 4 3]
}
