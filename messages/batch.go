package messages

import (
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
	Positive    []bool      `msgpack:"p"`
	Nodes       Uint32s     `msgpack:"n"`
	Blocks      wireBlocks  `msgpack:"b"`
	Slots       Uint32s     `msgpack:"l,omitempty"`
	Rows        Uint32s     `msgpack:"r,omitempty"`
	To          Uint32s     `msgpack:"o,omitempty"`
	Ticket      []byte      `msgpack:"k,omitempty"` // in place of all but Step and From
	X           Float32s    `msgpack:"x,omitempty"`
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
	w.Slots, w.X = m.Slots, m.X
	return e.Encode(w)
}

func newWire(step int64, from int, b *sampling.Batch) *wireSampled {
	w := &wireSampled{Nodes: Uint32s{}, Step: step, From: from, ID: b.ID, Seeds: b.Seeds, Targets: b.Targets, LossWeights: b.LossWeights, Positive: b.Positive}
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
	if w.Slots != nil || w.Rows != nil || w.To != nil || w.X != nil {
		return fmt.Errorf("messages: %v: slots or rows of a batch that was not matched", w.ID)
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
	if err == nil && w.X != nil {
		err = fmt.Errorf("messages: %v: rows of a batch that is not loaded", w.ID)
	}
	if err == nil && len(w.Rows) != len(w.To) {
		err = fmt.Errorf("messages: %v: %d rows to read into %d slots", w.ID, len(w.Rows), len(w.To))
	}
	*m = Matched{Step: w.Step, From: w.From, Batch: b, Slots: w.Slots, Rows: w.Rows, To: w.To}
	return err
}

// DecodeMsgpack implements msgpack.CustomDecoder, as for Matched; X has as many values
// for each input, if there is any.
func (m *Loaded) DecodeMsgpack(d *msgpack.Decoder) error {
	var w wireSampled
	if err := d.Decode(&w); err != nil {
		return err
	}
	b, err := w.matched()
	if err == nil && (w.Rows != nil || w.To != nil) {
		err = fmt.Errorf("messages: %v: rows to read of a batch that is loaded", w.ID)
	}
	if err == nil && w.X != nil && (w.Slots != nil || len(w.X) > 0 && (b.NumInputs() == 0 || len(w.X)%b.NumInputs() != 0)) {
		err = fmt.Errorf("messages: %v: rows of %d values and %d slots for %d inputs", w.ID, len(w.X), len(w.Slots), b.NumInputs())
	}
	*m = Loaded{Step: w.Step, From: w.From, Batch: b, Slots: w.Slots, X: w.X}
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
	b := &sampling.Batch{ID: w.ID, Seeds: w.Seeds, Targets: w.Targets, LossWeights: w.LossWeights, Positive: w.Positive}
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
	if err := b.Check(); err != nil {
		return nil, fmt.Errorf("messages: %v: %w", w.ID, err)
	}
	return b, nil
}
