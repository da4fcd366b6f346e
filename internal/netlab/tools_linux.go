package netlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const install = "apt-get install -y --no-install-recommends iproute2 nftables"

// tool runs one of ip, tc and nft with input on its standard input.
func tool(ctx context.Context, input, name string, args ...string) error {
	path, err := lookTool(name)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if input != "" {
		input = "\n" + input
	}
	return fmt.Errorf("netlab: %s %s: %w: %s%s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)), input)
}

// lookTool finds a tool, also where root's PATH lacks the system's folders.
func lookTool(name string) (string, error) {
	for _, path := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("netlab: %s is not installed; run: %s", name, install)
}

// features is what the trial found.
type features struct {
	netem bool // tc netem delays packets; without it a relay does
	err   error
}

// probe tries the machine once per process.
var probe = sync.OnceValue(func() features {
	for _, name := range []string{"ip", "tc", "nft"} {
		if _, err := lookTool(name); err != nil {
			return features{err: err}
		}
	}
	// The namespace has no name and goes with the goroutine's thread, which
	// nobody else gets: it stays locked.
	result := make(chan features)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			result <- features{err: fmt.Errorf("netlab: %w; mount /proc", err)}
			return
		}
		defer home.Close()
		f := trial()
		// The main thread would not end with the goroutine.
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil && f.err == nil {
			f.err = fmt.Errorf("netlab: cannot return to the machine's network namespace: %w", err)
		}
		result <- f
	}()
	return <-result
})

// trial makes one of everything in a new namespace of the calling thread.
func trial() features {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		if errors.Is(err, unix.EPERM) {
			err = errors.New("not permitted; run as root, in a container with --cap-add SYS_ADMIN,NET_ADMIN")
		}
		return features{err: fmt.Errorf("netlab: cannot make a network namespace: %w", err)}
	}
	ctx := context.Background()
	for _, step := range []struct {
		input, name string
		args        []string
	}{
		{"link add br0 type bridge\nlink add v0 type veth peer name v1\nlink set v0 master br0\n", "ip", []string{"-batch", "-"}},
		{"", "tc", []string{"qdisc", "add", "dev", "v1", "root", "tbf", "rate", "1mbit", "burst", "64kb", "limit", "64kb"}},
		{"table bridge trial {\nchain forward {\ntype filter hook forward priority 0\niifname \"v0\" ip daddr 10.0.0.1 numgen random mod 100 < 1 drop\n}\n}\n", "nft", []string{"-f", "-"}},
	} {
		if err := tool(ctx, step.input, step.name, step.args...); err != nil {
			return features{err: fmt.Errorf("%w\nnetlab: this kernel lacks what a lab needs: bridge, veth, sch_tbf, nf_tables with the bridge family and numgen", err)}
		}
	}
	err := tool(ctx, "", "tc", "qdisc", "add", "dev", "v0", "root", "netem", "delay", "1ms")
	return features{netem: err == nil}
}

// Available returns nil if labs can be made on this machine, else why not and
// what to do about it. It tries once, in a namespace that leaves no trace.
func Available() error { return probe().err }
