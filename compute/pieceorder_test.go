package compute

import (
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// What other pieces say of a master's row, sums of its entries and gradients, is added in the order of the pieces, whatever order it comes in: bits are then a
// function of the partition.
func TestPieceOrder(t *testing.T) {
	const round = "some"
	pieces := cut(testDataset(200, 5, 7, false), 0, 50, 100, 150, 200)
	memory := NewMemoryExchange()
	tape := NewTape[float32](testExec(t, 1, detected(t)), false)
	tape.halo = &halo{piece: pieces[1], exchange: memory}
	tape.halo.begin(t.Context(), 1)
	c := &crossing{sends: [][]uint32{{7}, nil, {7}, {7}}}
	said := map[int]float32{0: 1, 2: 1e8, 3: -1e8} // in this order 0, in the other 1
	for name, take := range map[string]func(g cpu.Matrix[float32]) error{
		"gradients": func(g cpu.Matrix[float32]) error {
			tape.takeBack(c, round, g)
			return tape.halo.err
		},
		"sums": func(g cpu.Matrix[float32]) error {
			var room []float32
			return pieces[1].receivePartial(t.Context(), memory, round, c.sends, 1, &room, func(_ int, masters []uint32, rows []float32) { tape.addRows(g, masters, rows) })
		},
	} {
		for _, q := range []int{3, 0, 2} {
			if err := memory.Send(t.Context(), round, q, 1, []float32{said[q]}); err != nil {
				t.Fatal(err)
			}
		}
		g := cpu.NewMatrix[float32](50, 1)
		if err := take(g); err != nil || g.Row(7)[0] != 0 {
			t.Errorf("%s: the sum is %v, not that in the order of the pieces; %v", name, g.Row(7)[0], err)
		}
	}
}
