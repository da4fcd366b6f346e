//go:build !amd64

package machinelimits

// SIMD names the instructions that limits are measured with.
func SIMD() string { return "go" }

func multiplyAdds(sink *[16]float32) float64 { return portableFMA(sink) }

func readSum(sink *[16]float32, p []float32) { portableRead(sink, p) }

func gatherSum(sink *[16]float32, table []float32, ids []uint32) { portableGather(sink, table, ids) }

func copyDense(dense, table []float32, ids []uint32) { portableCopy(dense, table, ids) }
