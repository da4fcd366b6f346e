package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/messages"
)

// LineageHash is the lineage of a version of the parameters as a hash: that of the
// version before, of which batch made this one, and of the statistics of that
// batch under the version before. So it can only come of every batch applied
// once and in order, to parameters that were the same at each of them; any
// number of nodes, and any of their deaths, lead to the same one.
type LineageHash [sha256.Size]byte

// Extend adds a batch that was applied.
func (c *LineageHash) Extend(a *messages.Applied) {
	var b [sha256.Size + 7*8]byte
	n := copy(b[:], c[:])
	for _, x := range [...]uint64{
		uint64(a.Step), uint64(a.ID.Epoch), uint64(a.ID.Batch),
		math.Float64bits(a.Stats.Loss), math.Float64bits(a.Stats.Weight), uint64(a.Stats.Correct), uint64(a.Stats.Count),
	} {
		binary.LittleEndian.PutUint64(b[n:], x)
		n += 8
	}
	*c = sha256.Sum256(b[:])
}

// String returns it in hex.
func (c LineageHash) String() string { return hex.EncodeToString(c[:]) }

// MarshalText implements encoding.TextMarshaler.
func (c LineageHash) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *LineageHash) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(c) {
		return fmt.Errorf("checkpoint: a lineage hash of %d characters; it has %d", len(b), 2*len(c))
	}
	_, err := hex.Decode(c[:], b)
	return err
}
