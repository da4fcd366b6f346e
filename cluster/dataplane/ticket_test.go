package dataplane

import (
	"encoding/binary"
	"testing"
)

// What was offered is let go of once: when it was withdrawn, and who began to read it before that has ended.
func TestOfferIsHeldWhileItIsRead(t *testing.T) {
	p := planes(t, nil, "a")[0]
	gone := 0
	ticket, withdraw := p.Offer("numbers", [][]byte{{1, 2, 3}}, func() { gone++ })
	whole := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(ticket.ID[:], 0), 3)
	read := func() func() {
		r, err := p.tickets.serve(t.Context(), &Request{Body: whole})
		if err != nil {
			t.Fatal(err)
		}
		return r.Release
	}
	first, second, third := read(), read(), read()
	for i, end := range []func(){first, withdraw, withdraw, second, third} {
		if gone != 0 {
			t.Fatalf("it was let go of before the end of use %d", i)
		}
		end()
	}
	if gone != 1 {
		t.Errorf("it was let go of %d times", gone)
	}
	if _, err := p.tickets.serve(t.Context(), &Request{Body: whole}); err == nil || p.Offers() != 0 {
		t.Errorf("what was withdrawn is read: %v, %d offers", err, p.Offers())
	}
}
