package runtime

import (
	"testing"

	"github.com/gnnactor/gnnactor/graph/features"
)

// closing is a store whose reads write to the slab until it is closed.
type closing struct {
	features.Store
	close func()
}

func (c closing) Close() error {
	c.close()
	return c.Store.Close()
}

// The store is closed first: what it still reads goes to the slab's memory.
func TestStoreClosesBeforeSlab(t *testing.T) {
	store := features.InMemory(small().NodeFeatures)
	slab, err := features.NewSlab(store.Layout(), features.SlabOptions{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	m := &resident{of: new(Runtime), slab: slab, owned: closing{store, func() {
		closed = true
		if slab.Table() == nil {
			t.Error("the slab's memory is gone")
		}
	}}}
	if err := m.close(); err != nil || !closed {
		t.Error(closed, err)
	}
}
