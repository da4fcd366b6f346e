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

// kinds makes an empty message of each kind that travels.
var kinds = map[string]func() Message{
	"seeds":   func() Message { return new(Seeds) },
	"nodes":   func() Message { return new(Nodes) },
	"facts":   func() Message { return new(Facts) },
	"sampled": func() Message { return new(Sampled) },
	"inputs":  func() Message { return new(Inputs) },
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
	return m, nil
}
