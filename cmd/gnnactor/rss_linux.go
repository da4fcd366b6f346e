package main

import (
	"bytes"
	"os"
	"strconv"
)

// peakRSS returns the most memory in bytes that this process had resident, or 0
// when the system does not tell. VmHWM belongs to the process's own memory;
// getrusage's figure would include a parent's from before exec.
func peakRSS() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
