package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func startRemote(o ...remote.ConfigOption) (*actor.ActorSystem, *remote.Remote) {
	s := newSystem()
	r := remote.NewRemote(s, remote.Configure("127.0.0.1", 0, o...))
	r.Start()
	return s, r
}

// collect spawns an actor that puts the texts it hears into a channel.
func collect(s *actor.ActorSystem) (*actor.PID, <-chan string) {
	heard := make(chan string, 1000)
	return s.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*wrapperspb.StringValue); ok {
			heard <- m.Value
		}
	})), heard
}

// stopWhileTalking stops two remotes that talk, one after the other, a few times.
func stopWhileTalking() error {
	for range 20 {
		if err := talkAndStop(); err != nil {
			return err
		}
	}
	return nil
}

func talkAndStop() error {
	ctx, cancel := limit()
	defer cancel()
	a, ra := startRemote()
	b, rb := startRemote()
	atA, heardA := collect(a)
	atB, heardB := collect(b)
	talk := func() {
		a.Root.Send(atB, wrapperspb.String("one"))
		b.Root.Send(atA, wrapperspb.String("two"))
	}
	talk()
	if err := errors.Join(await(ctx, heardA, 1), await(ctx, heardB, 1)); err != nil {
		return err
	}
	go talk()
	rb.Shutdown(true)
	ra.Shutdown(true)
	return nil
}

// startUnderLogger looks whether gRPC still writes to the logger that the process
// gave it.
func startUnderLogger() error {
	var log bytes.Buffer
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, &log))
	grpclog.Error("before")
	startRemote()
	grpclog.Error("after")
	if text := log.String(); !strings.Contains(text, "before") {
		return fmt.Errorf("the logger has %q", text)
	} else if !strings.Contains(text, "after") {
		fmt.Println(seen)
	}
	return nil
}

// sendUnknownType sends what any peer may: a type that this process has not.
func sendUnknownType() error {
	ctx, cancel := limit()
	defer cancel()
	s, _ := startRemote()
	cc, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	stream, err := remote.NewRemotingClient(cc).Receive(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: &remote.MessageBatch{
		TypeNames: []string{"no.such.Type"},
		Targets:   []*actor.PID{s.NewLocalPID("nobody")},
		Envelopes: []*remote.MessageEnvelope{{}},
	}}}); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	_, _ = stream.Recv() // returns when the server has dealt with it
	return nil
}

// sendOversized queues ten messages and one that gRPC's default limit refuses before
// it lets the connection come about; what is sent after it broke arrives.
func sendOversized() error {
	ctx, cancel := limit()
	defer cancel()
	queued := make(chan struct{})
	a, _ := startRemote(remote.WithDialOptions(grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			<-queued
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		})))
	b, _ := startRemote()
	lost := deadLetters(a, func(m any) bool { s, ok := m.(*wrapperspb.StringValue); return ok && s.Value == "early" })
	broken := make(chan struct{}, 1)
	a.EventStream.Subscribe(func(e any) {
		if _, ok := e.(*remote.EndpointTerminatedEvent); ok {
			select {
			case broken <- struct{}{}:
			default:
			}
		}
	})
	pid, heard := collect(b)
	for range 10 {
		a.Root.Send(pid, wrapperspb.String("early"))
	}
	a.Root.Send(pid, wrapperspb.String(strings.Repeat("x", 5<<20)))
	close(queued)
	if err := await(ctx, broken, 1); err != nil {
		return err
	}
	early := 0
	for {
		a.Root.Send(pid, wrapperspb.String("late")) // until the endpoint is made anew
		select {
		case m := <-heard:
			if m == "early" {
				early++
				continue
			}
			if early+int(lost.Load()) < 10 {
				fmt.Printf("%s: of 10 messages %d arrived and %d were reported\n", seen, early, lost.Load())
			}
			return nil
		default:
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// note is a message that only notes can encode.
type note struct{ text string }

type notes struct{}

func (notes) Serialize(m any) ([]byte, error) {
	n, ok := m.(note)
	if !ok {
		return nil, errors.New("not a note")
	}
	return []byte(n.text), nil
}
func (notes) Deserialize(_ string, b []byte) (any, error) { return note{string(b)}, nil }
func (notes) GetTypeName(any) (string, error)             { return "note", nil }

// sendWithSerializer sends a note, and then a message of protobuf's, which says that
// the note is not on its way any more.
func sendWithSerializer() error {
	ctx, cancel := limit()
	defer cancel()
	remote.RegisterSerializer(notes{})
	remote.DefaultSerializerID = 2 // after those of protobuf and JSON
	a, _ := startRemote()
	b, _ := startRemote()
	lost := deadLetters(a, func(m any) bool { _, ok := m.(note); return ok })
	var got atomic.Bool
	ended := make(chan struct{}, 1)
	pid := b.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch c.Message().(type) {
		case note:
			got.Store(true)
		case *wrapperspb.StringValue:
			ended <- struct{}{}
		}
	}))
	a.Root.Send(pid, note{"dear"})
	a.Root.Send(pid, wrapperspb.String("end"))
	if err := await(ctx, ended, 1); err != nil {
		return err
	}
	if !got.Load() && lost.Load() == 0 {
		fmt.Println(seen)
	}
	return nil
}
