package netlab_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/netlab"
)

// TestUsage shows how a test of several hosts is written: a server that is
// restarted when it fails, killed while its network loses packets.
func TestUsage(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	lab := netlab.ForTest(t, 2)
	server, client := lab.Host(0), lab.Host(1)

	log := newLog()
	p, err := server.Start(netlab.Command{
		Path:    os.Args[0],
		Dir:     t.TempDir(),
		Env:     []string{"NETLAB_ROLE=serve"},
		Log:     log,
		Restart: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	log.await(ctx, t, "listening")

	if err := client.Loss(5); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := p.Await(ctx, 2); err != nil {
		t.Fatal(err)
	}
	log.await(ctx, t, "listening")

	conn, err := client.Dial(ctx, "tcp", server.Addr().String()+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	const text = "still there?\n"
	if _, err := fmt.Fprint(conn, "echo\n", text); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(text))
	if _, err := io.ReadFull(conn, answer); err != nil || !strings.EqualFold(string(answer), text) {
		t.Fatalf("%q, %v; want %q", answer, err, text)
	}
}
