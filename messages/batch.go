package messages

import (
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/sampling"
)

// wireSampled is Sampled as it is encoded, and Matched and Loaded, which carry
// a batch with what was found out about it. The blocks' node lists are prefixes
// of one list (sampling.Batch), which is sent once.
type wireSampled struct {
	Step        int64       `msgpack:"s"`
	From        int         `msgpack:"f"`
	ID          sampling.ID `msgpack:"i"`
	Seeds       Uint32s     `msgpack:"v"`
	Targets     Uint32s     `msgpack:"t"`
	LossWeights Float32s    `msgpack:"w"`
	Nodes       Uint32s     `msgpack:"n"`
	Blocks      wireBlocks  `msgpack:"b"`
	Slots       Uint32s     `msgpack:"l,omitempty"`
	Rows        Uint32s     `msgpack:"r,omitempty"`
	To          Uint32s     `msgpack:"o,omitempty"`
	Ticket      []byte      `msgpack:"k,omitempty"` // in place of all but Step and From
}

// wireTicket is wireSampled of a batch that lies elsewhere.
type wireTicket struct {
	Step   int64  `msgpack:"s"`
	From   int    `msgpack:"f"`
	Ticket []byte `msgpack:"k"`
}

// maxBlocks bounds what a length prefix alone can make the decoder allocate.
const maxBlocks = 1024

type wireBlocks []wireBlock

// DecodeMsgpack implements msgpack.CustomDecoder.
func (x *wireBlocks) DecodeMsgpack(d *msgpack.Decoder) error {
	n, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	if n < 1 || n > maxBlocks {
		return fmt.Errorf("messages: %d blocks is not in [1, %d]", n, maxBlocks)
	}
	*x = nil
	for range n {
		var b wireBlock
		if err := d.Decode(&b); err != nil {
			return err
		}
		*x = append(*x, b)
	}
	return nil
}

type wireBlock struct {
	NumDst  int      `msgpack:"d"`
	NumSrc  int      `msgpack:"s"`
	Indptr  Int64s   `msgpack:"p"`
	Indices Uint32s  `msgpack:"i"`
	Weights Float32s `msgpack:"w"`
	EdgeIDs Int64s   `msgpack:"e"`
	Named   bool     `msgpack:"n"` // SrcIDs is the prefix of Nodes; else nil
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (m *Sampled) EncodeMsgpack(e *msgpack.Encoder) error {
	if m.Batch == nil {
		return e.Encode(&wireTicket{m.Step, m.From, m.Ticket})
	}
	return e.Encode(newWire(m.Step, m.From, m.Batch))
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (m *Matched) EncodeMsgpack(e *msgpack.Encoder) error {
	w := newWire(m.Step, m.From, m.Batch)
	w.Slots, w.Rows, w.To = m.Slots, m.Rows, m.To
	return e.Encode(w)
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (m *Loaded) EncodeMsgpack(e *msgpack.Encoder) error {
	w := newWire(m.Step, m.From, m.Batch)
	w.Slots = m.Slots
	return e.Encode(w)
}

func newWire(step int64, from int, b *sampling.Batch) *wireSampled {
	w := &wireSampled{Nodes: Uint32s{}, Step: step, From: from, ID: b.ID, Seeds: b.Seeds, Targets: b.Targets, LossWeights: b.LossWeights}
	for i := range b.Blocks {
		k := &b.Blocks[i]
		if len(k.SrcIDs) > len(w.Nodes) {
			w.Nodes = k.SrcIDs
		}
		w.Blocks = append(w.Blocks, wireBlock{k.NumDst, k.NumSrc, k.Indptr, k.Indices, k.Weights, k.EdgeIDs, k.SrcIDs != nil})
	}
	return w
}

// DecodeMsgpack implements msgpack.CustomDecoder. A batch whose blocks do not
// fit together is refused: what passes can be computed without bounds errors,
// save that SrcIDs and Targets still have to be checked against the graph.
func (m *Sampled) DecodeMsgpack(d *msgpack.Decoder) error {
	var w wireSampled
	if err := d.Decode(&w); err != nil {
		return err
	}
	if w.Slots != nil || w.Rows != nil || w.To != nil {
		return fmt.Errorf("messages: %v: slots of a batch that was not matched", w.ID)
	}
	m.Step, m.From = w.Step, w.From
	if len(w.Ticket) > 0 {
		m.Ticket = w.Ticket
		return nil
	}
	var err error
	m.Batch, err = w.batch()
	return err
}

// DecodeMsgpack implements msgpack.CustomDecoder: as for Sampled, and there is
// a slot for each input and each row. Whether there are such rows and slots has
// still to be checked against store and slab.
func (m *Matched) DecodeMsgpack(d *msgpack.Decoder) error {
	var w wireSampled
	if err := d.Decode(&w); err != nil {
		return err
	}
	b, err := w.matched()
	if err == nil && len(w.Rows) != len(w.To) {
		err = fmt.Errorf("messages: %v: %d rows to read into %d slots", w.ID, len(w.Rows), len(w.To))
	}
	*m = Matched{Step: w.Step, From: w.From, Batch: b, Slots: w.Slots, Rows: w.Rows, To: w.To}
	return err
}

// DecodeMsgpack implements msgpack.CustomDecoder, as for Matched.
func (m *Loaded) DecodeMsgpack(d *msgpack.Decoder) error {
	var w wireSampled
	if err := d.Decode(&w); err != nil {
		return err
	}
	b, err := w.matched()
	if err == nil && (w.Rows != nil || w.To != nil) {
		err = fmt.Errorf("messages: %v: rows to read of a batch that is loaded", w.ID)
	}
	*m = Loaded{Step: w.Step, From: w.From, Batch: b, Slots: w.Slots}
	return err
}

// matched is batch for a batch with slots; Loaded has none where rows are read
// from where the table lies.
func (w *wireSampled) matched() (*sampling.Batch, error) {
	b, err := w.batch()
	if err == nil && w.Slots != nil && len(w.Slots) != b.NumInputs() {
		err = fmt.Errorf("messages: %v: %d slots for %d inputs", w.ID, len(w.Slots), b.NumInputs())
	}
	return b, err
}

// batch makes the batch, checked.
func (w *wireSampled) batch() (*sampling.Batch, error) {
	b := &sampling.Batch{ID: w.ID, Seeds: w.Seeds, Targets: w.Targets, LossWeights: w.LossWeights}
	for i := range w.Blocks {
		k := graph.Block{
			NumDst: w.Blocks[i].NumDst, NumSrc: w.Blocks[i].NumSrc, Indptr: w.Blocks[i].Indptr,
			Indices: w.Blocks[i].Indices, Weights: w.Blocks[i].Weights, EdgeIDs: w.Blocks[i].EdgeIDs,
		}
		if w.Blocks[i].Named {
			if k.NumSrc < 0 || k.NumSrc > len(w.Nodes) {
				return nil, fmt.Errorf("messages: %v block %d: %d sources but %d nodes", w.ID, i, k.NumSrc, len(w.Nodes))
			}
			k.SrcIDs = w.Nodes[:k.NumSrc:k.NumSrc]
		}
		b.Blocks = append(b.Blocks, k)
	}
	if err := checkBatch(b); err != nil {
		return nil, fmt.Errorf("messages: %v: %w", w.ID, err)
	}
	return b, nil
}

// checkBatch reports why b's blocks, seeds and targets do not fit together.
func checkBatch(b *sampling.Batch) error {
	for i := range b.Blocks {
		k := &b.Blocks[i]
		if err := checkBlock(k); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
		if i > 0 && b.Blocks[i-1].NumDst != k.NumSrc {
			return fmt.Errorf("block %d: %d sources but the block before has %d destinations", i, k.NumSrc, b.Blocks[i-1].NumDst)
		}
	}
	if len(b.Blocks) == 0 {
		return errors.New("it has no block")
	}
	out := b.Blocks[len(b.Blocks)-1].NumDst
	if b.Targets == nil && len(b.Seeds) > out {
		return fmt.Errorf("%d seeds but %d outputs", len(b.Seeds), out)
	}
	if b.Targets != nil && len(b.Targets) != len(b.Seeds) {
		return fmt.Errorf("%d targets for %d seeds", len(b.Targets), len(b.Seeds))
	}
	for i, t := range b.Targets {
		if int64(t) >= int64(out) {
			return fmt.Errorf("target %d is row %d of %d", i, t, out)
		}
	}
	if b.LossWeights != nil && len(b.LossWeights) != len(b.Seeds) {
		return fmt.Errorf("%d loss weights for %d seeds", len(b.LossWeights), len(b.Seeds))
	}
	return nil
}

func checkBlock(k *graph.Block) error {
	if k.NumDst < 0 || k.NumSrc < k.NumDst {
		return fmt.Errorf("%d destinations, %d sources", k.NumDst, k.NumSrc)
	}
	if len(k.Indptr) != k.NumDst+1 || k.Indptr[0] != 0 || k.Indptr[k.NumDst] != int64(len(k.Indices)) {
		return fmt.Errorf("row pointers do not span the %d entries", len(k.Indices))
	}
	for i := range k.NumDst {
		if k.Indptr[i+1] < k.Indptr[i] {
			return fmt.Errorf("row pointer %d decreases", i+1)
		}
	}
	for i, u := range k.Indices {
		if int64(u) >= int64(k.NumSrc) {
			return fmt.Errorf("entry %d is source %d of %d", i, u, k.NumSrc)
		}
	}
	if k.Weights != nil && len(k.Weights) != len(k.Indices) {
		return fmt.Errorf("%d weights for %d entries", len(k.Weights), len(k.Indices))
	}
	if k.EdgeIDs != nil && len(k.EdgeIDs) != len(k.Indices) {
		return fmt.Errorf("%d edge ids for %d entries", len(k.EdgeIDs), len(k.Indices))
	}
	return nil
}
