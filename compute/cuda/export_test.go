//go:build linux && (amd64 || arm64) && !nogpu

package cuda

// Enough has the largest tiles for products of as many blocks, until the function that it
// returns is called.
func Enough(blocks int) (restore func()) {
	old := enough
	enough = blocks
	return func() { enough = old }
}

// Functions returns the names of the driver's functions that are called.
func Functions() []string { return names[:] }
