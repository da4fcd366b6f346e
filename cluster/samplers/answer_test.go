package samplers

import (
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// reply is what a sampler answers with a ticket.
func reply(t testing.TB, ticket dataplane.Ticket) []byte {
	t.Helper()
	b, err := msgpack.Marshal(&ticket)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = messages.Marshal(&messages.Sampled{Step: 1, Ticket: b}); err != nil {
		t.Fatal(err)
	}
	return b
}

// packed is a batch of one edge, as a sampler hands it out.
func packed(seed, source uint32, edge int64) []byte {
	return messages.AppendBatch(nil, &sampling.Batch{Seeds: []uint32{seed}, Blocks: []graph.Block{{
		NumDst: 1, NumSrc: 2, Indptr: []int64{0, 1}, Indices: []uint32{1}, EdgeIDs: []int64{edge}, SrcIDs: []uint32{seed, source},
	}}})
}

// What a sampler answers is looked at before anything is fetched, or looked up, by it.
func TestAnswersOfSamplers(t *testing.T) {
	for text, ticket := range map[string]dataplane.Ticket{
		"":             {Node: "b", Size: 100},
		`at node "c"`:  {Node: "c", Size: 100},
		"for -1 bytes": {Node: "b", Size: -1},
		"for 0 bytes":  {Node: "b"},
		"no batch has": {Node: "b", Size: 1 << 60},
	} {
		if got, err := ticketOf(reply(t, ticket), "b"); (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) || err == nil && got != ticket {
			t.Errorf("%+v: %v, want %q", ticket, err, text)
		}
	}
	whole, err := messages.Marshal(&messages.Sampled{Batch: &sampling.Batch{Blocks: []graph.Block{{Indptr: []int64{0}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ticketOf(whole, "b"); err == nil || !strings.Contains(err.Error(), "in place of a ticket") {
		t.Errorf("a batch within the message: %v", err)
	}
	g := graph.Elsewhere(10, 20)
	for text, data := range map[string][]byte{
		"":                             packed(3, 9, 19),
		"node 10 is out of range":      packed(3, 10, 19),
		"entry 0 is edge 20 of 20":     packed(3, 9, 20),
		"entry 0 is edge -1 of 20":     packed(3, 9, -1),
		"has other seeds there":        packed(4, 9, 19),
		"messages: malformed message:": packed(3, 9, 19)[:10],
	} {
		b, m := new(sampling.Batch), &messages.Seeds{ID: sampling.ID{Phase: "train", Of: 1}, Seeds: []uint32{3}}
		if err := read(b, m, data, g); (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		} else if err != nil && (len(b.Blocks) > 0 || b.Seeds != nil) {
			t.Errorf("%v: a batch is left", err)
		}
	}
}

// Whatever a node answers, it is an error or a batch that can be computed and looked up.
func FuzzAnswer(f *testing.F) {
	f.Add(reply(f, dataplane.Ticket{Node: "b", Size: 100}), packed(3, 9, 19))
	f.Add(reply(f, dataplane.Ticket{Node: "c", Size: -1}), packed(3, 10, -1))
	f.Fuzz(func(t *testing.T, answer, data []byte) {
		if ticket, err := ticketOf(answer, "b"); err == nil && (ticket.Node != "b" || ticket.Size < 1) {
			t.Errorf("%+v", ticket)
		}
		b := new(sampling.Batch)
		if read(b, &messages.Seeds{ID: sampling.ID{Phase: "train", Of: 1}}, data, graph.Elsewhere(10, 20)) != nil {
			return
		}
		for _, k := range b.Blocks {
			for _, u := range k.SrcIDs {
				_ = [10]byte{}[u]
			}
			for _, e := range k.EdgeIDs {
				_ = [20]byte{}[e]
			}
		}
	})
}
