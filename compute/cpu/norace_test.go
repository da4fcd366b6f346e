//go:build !race

package cpu

import "math"

// largestProduct bounds m·n·k of the products that tests compute.
const largestProduct = math.MaxInt

// raced is whether the race detector watches.
const raced = false
