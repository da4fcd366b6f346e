package transport_test

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// An authority that issues the certificate that a node serves from.
func ExampleNewAuthority() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	authority, err := transport.NewAuthority("my cluster", 24*time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	if err := authority.Save(dir); err != nil {
		log.Fatal(err)
	}
	files, err := authority.Issue(dir, "node-a", []string{"127.0.0.1"}, time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	_, err = transport.LoadCerts(files, nil)
	fmt.Println(err)
	// Output: <nil>
}
