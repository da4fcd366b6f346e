package trainers

import (
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/internal/msgpackcheck"
	"github.com/gnnactor/gnnactor/training"
)

// hello is what the members of a group tell each other before its first step.
type hello struct {
	Identity string           `msgpack:"i"`
	Step     int64            `msgpack:"s"` // the next one
	Mark     string           `msgpack:"m"` // of the state at Step
	First    int64            `msgpack:"f"` // of the lineage
	Runs     uint64           `msgpack:"r"` // what the lineage hashes to
	Verdict  int64            `msgpack:"v"` // of the audit, the newest that the state has seen
	Ticket   dataplane.Ticket `msgpack:"t"` // the state, from who is or may be furthest
	Lineage  []training.Run   `msgpack:"l"` // of that state
}

// maxHello bounds what a trainer says; reduce bounds it too.
const maxHello = 1 << 20

func (h *hello) encode() ([]byte, error) {
	b, err := msgpack.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("trainers: %w", err)
	}
	if len(b) > maxHello {
		return nil, fmt.Errorf("trainers: a lineage of %d groups in %d bytes; at most %d; end the run and resume it from its checkpoint", len(h.Lineage), len(b), maxHello)
	}
	return b, nil
}

// decodeHello decodes what a peer says.
func decodeHello(b []byte) (h hello, err error) {
	if len(b) > maxHello {
		return h, fmt.Errorf("%d bytes; at most %d", len(b), maxHello)
	}
	if err := msgpackcheck.Unmarshal(b, &h); err != nil {
		return hello{}, err
	}
	switch {
	case h.Step < 0 || h.First < 0 || h.Verdict < 0:
		return hello{}, fmt.Errorf("step %d, and first step %d", h.Step, h.First)
	case len(h.Lineage) > 0 && !training.Chained(h.Lineage, h.Step):
		return hello{}, errors.New("a lineage with gaps")
	}
	return h, nil
}
