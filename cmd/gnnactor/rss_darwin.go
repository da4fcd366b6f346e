package main

import "golang.org/x/sys/unix"

// peakRSS returns the most memory in bytes that this process had resident, or 0
// when the system does not tell.
func peakRSS() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Maxrss // bytes on this system
}
