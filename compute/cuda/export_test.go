//go:build linux && (amd64 || arm64) && !nogpu

package cuda

// Functions returns the names of the driver's functions that are called.
func Functions() []string { return names[:] }
