//go:build !linux

package clock

import "time"

// threadCPU returns 0: the CPU time of a thread is measured on Linux only.
func threadCPU() time.Duration { return 0 }
