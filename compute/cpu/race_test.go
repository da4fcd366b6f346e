//go:build race

package cpu

// largestProduct bounds m·n·k of the products that tests compute: under the race
// detector the portable kernels take a hundred times as long.
const largestProduct = 2_000_000

// raced is whether the race detector watches. It sees nothing of assembly, and nothing
// to find with one worker: tests run the portable kernels and the machine's best, with two.
const raced = true
