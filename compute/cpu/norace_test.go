//go:build !race

package cpu

import "math"

// largestProduct bounds m·n·k of the products that tests compute.
const largestProduct = math.MaxInt
