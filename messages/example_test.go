package messages_test

import (
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/messages"
)

func ExampleMarshal() {
	sent := &messages.Nodes{Nodes: []uint32{2, 3}}
	body, err := messages.Marshal(sent)
	if err != nil {
		log.Fatal(err)
	}
	got, err := messages.Unmarshal(sent.Kind(), body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.(*messages.Nodes).Nodes)
	// Output: [2 3]
}
