// Package upstream shows the faults of the libraries that this project works around
// rather than with, one by one, against the versions in go.mod. docs/decisions.md has
// what was built instead.
//
//	GNNACTOR_UPSTREAM=1 CGO_ENABLED=1 go test -race -v ./internal/upstream
//
// A fault that is mended fails its test: then what was built instead may go.
package upstream

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/leak"
)

const (
	run   = "GNNACTOR_UPSTREAM"       // 1: show the faults
	which = "GNNACTOR_UPSTREAM_FAULT" // in a process of its own: the one to show
)

// A fault is shown in a process of its own, since some end it and most leave
// goroutines behind.
type fault struct {
	name   string
	reason string       // what goes wrong, and what would be right
	show   func() error // prints what the process's output shows; an error: it could not be tried
	shows  []string     // all of it in the output, or in one report of the race detector: the fault is there
	race   bool         // the race detector sees it
}

// seen is what show prints where no panic and no detector speaks.
const seen = "the fault is there"

var faults = []fault{
	{"RemoteStops", "remote: stop() of the endpoint manager writes connections, stopped and endpointSub while deliveries and events read them; a lock or atomics would do",
		stopWhileTalking, []string{"DATA RACE", "endpointManager).stop()"}, true},
	{"RemoteTakesLogger", "remote: Start replaces gRPC's logger for the whole process; it should leave it alone",
		startUnderLogger, []string{seen}, false},
	{"RemoteUnknownType", "remote: a message of an unknown type ends the process that receives it; it should be refused",
		sendUnknownType, []string{"panic: runtime error: invalid memory address", "protoSerializer).Deserialize"}, false},
	{"RemoteLosesBatch", "remote: what is queued when a connection breaks is lost without a dead letter; it should be sent again or reported",
		sendOversized, []string{seen}, false},
	{"RemoteSerializer", "remote: a registered serializer is used for receiving only; sending always takes the first, and drops what that cannot encode",
		sendWithSerializer, []string{seen}, false},
	{"BoundedDeadlock", "actor: two full bounded mailboxes whose actors send to each other never move again, and both spin; a send should fail or wait without holding Receive",
		fillEachOther, []string{seen}, false},
	{"DroppingIsSilent", "actor: a dropping mailbox drops without a dead letter",
		overfill, []string{seen}, false},
	{"StopDropsQueue", "actor: messages that are queued when an actor stops are gone without a dead letter",
		stopFull, []string{seen}, false},
	{"FutureChanges", "actor: a reply that comes after a future's time-out changes what the future holds; the first outcome should stay",
		answerLate, []string{seen}, false},
	{"FutureRaces", "actor: a reply and a time-out of a future write its outcome without a common lock",
		answerInTime, []string{"DATA RACE", "futureProcess).SendUserMessage"}, true},
	{"ShutdownTwice", "actor: the second Shutdown of an actor system panics; it should do nothing",
		shutdownTwice, []string{"panic: close of closed channel", "ActorSystem).Shutdown"}, false},
	{"ActivatedTwice", "cluster: with disthash a node activates an identity that it does not own by its own view of the members; once all agree, two copies are active for good",
		activateTwice, []string{seen}, false},
	{"RetriesAtOnce", "cluster: the pauses between retries of a request are nanoseconds, for want of a unit",
		retry, []string{seen}, false},
	{"OptionsLeak", "cluster: options of one RequestFuture hold for all later ones of the process",
		leakOptions, []string{seen}, false},
	{"GossipRaces", "cluster: gossip overwrites entries of its state while they are encoded for another member; they should be copied",
		gossip, []string{"DATA RACE", "cluster.setKey()"}, true},
}

// output is what a process prints until its fault is seen.
type output struct {
	text  bytes.Buffer
	fault fault
	found func()
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.text.Write(b)
	if o.shows() {
		o.found()
	}
	return n, err
}

// shows reports whether the fault is in what was printed.
func (o *output) shows() bool {
	said := []string{o.text.String()}
	if o.fault.race {
		said = strings.Split(o.text.String(), "==================\n")
	}
	return slices.ContainsFunc(said, func(text string) bool {
		return !slices.ContainsFunc(o.fault.shows, func(want string) bool { return !strings.Contains(text, want) })
	})
}

func TestMain(m *testing.M) {
	name := os.Getenv(which)
	for _, f := range faults {
		if f.name == name {
			if err := f.show(); err != nil {
				fmt.Println("not tried:", err)
				os.Exit(2)
			}
			os.Exit(0)
		}
	}
	leak.Main(m)
}

func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if os.Getenv(run) != "1" {
				t.Skip(f.reason + "; " + run + "=1 shows it")
			}
			if f.race && !raced {
				t.Skip(f.reason + "; the race detector shows it: go test -race")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), which+"="+f.name, "GORACE=exitcode=0") // there are other races on the way
			out := &output{fault: f, found: cancel}
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Run(); !out.shows() {
				t.Fatalf("mended, or gone wrong in another way (no %q; %v): %s\n%s", f.shows, err, f.reason, out.text.String())
			}
			if _, detail, ok := strings.Cut(out.text.String(), seen+": "); ok {
				t.Log(strings.TrimSpace(detail))
			}
		})
	}
}

// limit is how long a show waits for what comes at once.
func limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// await takes n values, or fails.
func await[T any](ctx context.Context, from <-chan T, n int) error {
	for i := range n {
		select {
		case <-from:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d came: %w", i, n, ctx.Err())
		}
	}
	return nil
}
