package compute

import (
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// An arena whose pieces stay holds about what is needed, also where that grows each time, as of chunks of nodes whose degrees rise.
func TestArenaWithRoomDoesNotPileUp(t *testing.T) {
	a := Arena[float32]{fixed: true, room: settleRoom}
	n, last := 1<<18, 0 // what is needed, and was the time before
	for range 40 {
		a.Reset()
		if most := 2*last + arenaPiece*len(a.pieces); last > 0 && a.Cap() > most {
			t.Fatalf("%d values are held, and %d were needed", a.Cap(), last)
		}
		a.Alloc(n)
		a.Alloc(1 << 17)
		last, n = n+1<<17, n+n/8
	}
}

// What all arenas of a tape that is of one piece took once stays as it is, and is used again.
func TestFixedTapeKeepsItsMemory(t *testing.T) {
	x := NewTape[float32](testExec(t, 1, cpu.Go), true)
	use := func() {
		for _, n := range []int{arenaPiece, 2 * arenaPiece} {
			x.mem.Alloc(n)
			x.marks.Alloc(n)
			x.host.Alloc(n)
			x.ints.Alloc(n)
			x.longs.Alloc(n)
		}
		x.Reset()
	}
	x.fix()
	use()
	pieces := func() []int {
		return []int{len(x.mem.pieces), len(x.marks.pieces), len(x.host.pieces), len(x.ints.pieces), len(x.longs.pieces)}
	}
	if got := pieces(); !slices.Equal(got, []int{2, 2, 2, 2, 2}) {
		t.Errorf("the arenas have %v pieces; want the two that were taken", got)
	}
	held := x.held()
	if use(); x.held() != held {
		t.Errorf("%d bytes are held, and %d the time before", x.held(), held)
	}
}
