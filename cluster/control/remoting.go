package control

import (
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Nodes speak the protocol of Proto.Actor's remote: a stream per direction, which
// begins with a ConnectRequest and its ConnectResponse, and carries MessageBatches.
// A message's data is a BytesValue: the plane's envelope, in msgpack.
//
// It is that library's protocol and not its endpoints, for what these do is not
// what this plane promises: see docs/decisions.md.

const (
	remotingService = "remote.Remoting"
	remotingStream  = "Receive"
	// serializer is that of protobuf messages, and messageType their type.
	serializer  = 0
	messageType = "google.protobuf.BytesValue"

	// maxBatch is how many messages a batch has at most, maxFrame its bytes.
	maxBatch = 16
	maxFrame = 2 << 20
	// maxFields bounds what a frame is made of, so that decoding it takes no more
	// memory than a small multiple of its bytes.
	maxFields = 16 + 16*maxBatch
)

// errRemoting is wrapped by the errors of what breaks the protocol.
var errRemoting = errors.New("control: protocol error")

// frame is what a stream or a question of an operator carries, undecoded.
type frame []byte

// codec lets frames through as they are.
type codec struct{}

func (codec) Name() string { return "gnnactor-control" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*frame))}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*frame) = data.Materialize()
	return nil
}

// fields calls f for each field of a protobuf message: with its bytes, if it has any.
func fields(b []byte, f func(n protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		n, t, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(n, t, b[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		var v []byte
		if t == protowire.BytesType {
			v, _ = protowire.ConsumeBytes(b[tag:])
		}
		if err := f(n, v); err != nil {
			return err
		}
		b = b[tag+size:]
	}
	return nil
}

// The fields of a RemoteMessage, a MessageBatch and a MessageEnvelope that have
// fields of their own which count.
const (
	fieldBatch     protowire.Number = 1
	fieldEnvelopes protowire.Number = 3
	fieldHeader    protowire.Number = 6
)

// checkFrame reports why a frame is not one that a node sends.
func checkFrame(raw []byte) error {
	if len(raw) > maxFrame {
		return fmt.Errorf("%w: a frame of %d bytes", errRemoting, len(raw))
	}
	count := 0
	add := func() error {
		if count++; count > maxFields {
			return fmt.Errorf("more than %d fields", maxFields)
		}
		return nil
	}
	err := fields(raw, func(n protowire.Number, v []byte) error {
		if n != fieldBatch {
			return add()
		}
		return errors.Join(add(), fields(v, func(n protowire.Number, v []byte) error {
			if n != fieldEnvelopes {
				return add()
			}
			return errors.Join(add(), fields(v, func(n protowire.Number, _ []byte) error {
				if n == fieldHeader {
					return errors.New("a message with a header")
				}
				return add()
			}))
		}))
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errRemoting, err)
	}
	return nil
}

// decodeFrame decodes what a peer sent.
func decodeFrame(raw []byte) (*remote.RemoteMessage, error) {
	if err := checkFrame(raw); err != nil {
		return nil, err
	}
	m := new(remote.RemoteMessage)
	if err := proto.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errRemoting, err)
	}
	return m, nil
}

func encodeFrame(m *remote.RemoteMessage) (frame, error) {
	raw, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return raw, nil
}

// message is one on its way: an envelope, and the actors that it is from and for.
type message struct {
	number         number
	target, sender string // ids, on the peer and here
	what           string // it is counted as
	raw            []byte
	acked          chan error // what becomes of it; the plane's lock is held to tell
}

// encodeBatch packs messages from a node to another, by what PIDs call them.
func encodeBatch(from, to string, messages []*message) (frame, error) {
	b := &remote.MessageBatch{TypeNames: []string{messageType}}
	for i, m := range messages {
		data, err := proto.Marshal(wrapperspb.Bytes(m.raw))
		if err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
		b.Targets = append(b.Targets, actor.NewPID(to, m.target))
		b.Senders = append(b.Senders, actor.NewPID(from, m.sender))
		// Senders count from 1: 0 is nobody.
		b.Envelopes = append(b.Envelopes, &remote.MessageEnvelope{MessageData: data, Target: int32(i), Sender: int32(i) + 1, SerializerId: serializer})
	}
	return encodeFrame(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: b}})
}

// at returns an element of what a peer sent, the zero value for an index that is not there.
func at[T any](all []T, i int32) (v T) {
	if i >= 0 && int(i) < len(all) {
		v = all[i]
	}
	return v
}

// decodeBatch unpacks messages, which must be from actors of a node and for those of another.
func decodeBatch(b *remote.MessageBatch, from, to string) (messages []*message, err error) {
	for _, e := range b.GetEnvelopes() {
		target, sender := at(b.GetTargets(), e.GetTarget()), at(b.GetSenders(), e.GetSender()-1)
		var data wrapperspb.BytesValue
		switch {
		case target.GetAddress() != to:
			err = fmt.Errorf("a message for %.80q", target.GetAddress())
		case sender.GetAddress() != from:
			err = fmt.Errorf("a message from %.80q", sender.GetAddress())
		case len(target.GetId()) > maxName || len(sender.GetId()) > maxName:
			err = fmt.Errorf("actors with names of %d and %d bytes", len(target.GetId()), len(sender.GetId()))
		case at(b.GetTypeNames(), e.GetTypeId()) != messageType || e.GetSerializerId() != serializer:
			err = fmt.Errorf("a message that is no %s", messageType)
		default:
			err = proto.Unmarshal(e.GetMessageData(), &data)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errRemoting, err)
		}
		messages = append(messages, &message{target: target.GetId(), sender: sender.GetId(), raw: data.GetValue()})
	}
	return messages, nil
}
