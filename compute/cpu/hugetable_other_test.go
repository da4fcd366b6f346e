//go:build !linux

package cpu

import "testing"

func hugeTable(_ *testing.B, n int) []float32 { return make([]float32, n) }
