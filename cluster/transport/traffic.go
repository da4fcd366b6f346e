package transport

import (
	"maps"
	"slices"
	"sync"
)

// Sent is what messages of one type came to that a node sent.
type Sent struct {
	Type   string `msgpack:"t" json:"type"`
	Count  int64  `msgpack:"n" json:"count"`
	Header int64  `msgpack:"h" json:"header_bytes"` // of the control plane's envelopes, and of the data plane's frames without what they carry
	Bulk   int64  `msgpack:"b" json:"bulk_bytes"`   // that the data plane's frames carry
	// Envelope is the size of the largest envelope, in bytes; 0: the data plane has none.
	Envelope int64 `msgpack:"e" json:"largest_envelope,omitempty"`
}

// Traffic counts what a node sends, by type of message. The zero value is ready; its methods may
// be called by several goroutines.
type Traffic struct {
	mu    sync.Mutex
	types map[string]*Sent
}

// Add counts count messages of a type, or parts of one, with their bytes; envelope: of the control
// plane's.
func (t *Traffic) Add(name string, count, header, bulk, envelope int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.types[name]
	if s == nil {
		if t.types == nil {
			t.types = map[string]*Sent{}
		}
		s = &Sent{Type: name}
		t.types[name] = s
	}
	s.Count += int64(count)
	s.Header += int64(header)
	s.Bulk += int64(bulk)
	s.Envelope = max(s.Envelope, int64(envelope))
}

// All returns the counts, by name.
func (t *Traffic) All() []Sent {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Sent
	for _, name := range slices.Sorted(maps.Keys(t.types)) {
		all = append(all, *t.types[name])
	}
	return all
}

// Sum adds up what several nodes sent, by name.
func Sum(nodes ...[]Sent) []Sent {
	var t Traffic
	for _, sent := range nodes {
		for _, s := range sent {
			t.Add(s.Type, int(s.Count), int(s.Header), int(s.Bulk), int(s.Envelope))
		}
	}
	return t.All()
}
