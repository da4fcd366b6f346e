//go:build race

package cpu

// largestProduct bounds m·n·k of the products that tests compute: under the race
// detector the portable kernels take a hundred times as long.
const largestProduct = 2_000_000
