package compute

import "testing"

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
