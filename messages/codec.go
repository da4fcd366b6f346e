package messages

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/internal/msgpackcheck"
)

// ErrMessage is wrapped by every error of Unmarshal.
var ErrMessage = errors.New("messages: malformed message")

// kinds makes an empty message of each kind.
var kinds = map[string]func() Message{
	"credit":   func() Message { return new(Credit) },
	"seeds":    func() Message { return new(Seeds) },
	"nodes":    func() Message { return new(Nodes) },
	"facts":    func() Message { return new(Facts) },
	"sampled":  func() Message { return new(Sampled) },
	"matched":  func() Message { return new(Matched) },
	"loaded":   func() Message { return new(Loaded) },
	"released": func() Message { return new(Released) },
	"tune":     func() Message { return new(Tune) },
	"begun":    func() Message { return new(Begun) },
	"gradient": func() Message { return new(Gradient) },
	"version":  func() Message { return new(Version) },
	"applied":  func() Message { return new(Applied) },
	"proceed":  func() Message { return new(Proceed) },
	"placed":   func() Message { return new(Placed) },
	"inputs":   func() Message { return new(Inputs) },
	"failed":   func() Message { return new(Failed) },
	"drain":    func() Message { return new(Drain) },
	"drained":  func() Message { return new(Drained) },
	"snapshot": func() Message { return new(Snapshot) },
	"state":    func() Message { return new(State) },
}

// Marshal returns the msgpack body of m; with m.Kind() it is all that the
// other side needs. The result shares no memory with m.
func Marshal(m Message) ([]byte, error) {
	var buf bytes.Buffer
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(&buf)
	e.UseCompactInts(true)
	if err := e.Encode(m); err != nil {
		return nil, fmt.Errorf("messages: encode %s: %w", m.Kind(), err)
	}
	return buf.Bytes(), nil
}

// Unmarshal decodes a body made by Marshal. Bytes from elsewhere are safe to
// pass: they give an error that wraps ErrMessage, and memory use is bounded by
// a small multiple of len(body).
func Unmarshal(kind string, body []byte) (Message, error) {
	make, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("%w: unknown kind %q", ErrMessage, kind)
	}
	m := make()
	if err := msgpackcheck.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMessage, kind, err)
	}
	if carriesNone(m) {
		return nil, fmt.Errorf("%w: %s: no batch", ErrMessage, kind)
	}
	return m, nil
}

// carriesNone reports a message whose batch is missing: its body was nil.
func carriesNone(m Message) bool {
	switch m := m.(type) {
	case *Sampled:
		return m.Batch == nil && m.Ticket == nil
	case *Matched:
		return m.Batch == nil
	case *Loaded:
		return m.Batch == nil
	}
	return false
}
