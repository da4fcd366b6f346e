package transport_test

import (
	"context"
	"fmt"
	"log"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// A service on loopback, in plaintext, and a call of it. The planes bring codecs of their own.
func ExampleListen() {
	o := transport.Options{
		Codec: encoding.GetCodecV2("proto"), MaxMessage: 1 << 10, Window: 1 << 16, Buffer: 1 << 12,
		Streams: 4, Connections: 16, PerNode: 3,
	}
	length := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in wrapperspb.StringValue
		err := decode(&in)
		return wrapperspb.Int64(int64(len(in.GetValue()))), err
	}
	s, err := transport.Listen("127.0.0.1:0", o, &grpc.ServiceDesc{
		ServiceName: "text", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Length", Handler: length}},
	})
	if err != nil {
		log.Fatal(err)
	}
	go s.Serve() // until Close
	defer s.Close()
	conn, err := transport.Dial(s.Address(), o)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	var n wrapperspb.Int64Value
	err = conn.Invoke(context.Background(), "/text/Length", wrapperspb.String("rows"), &n)
	fmt.Println(n.GetValue(), err)
	// Output: 4 <nil>
}
