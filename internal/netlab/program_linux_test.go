package netlab_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/internal/netlab"
)

// The test binary is also the program that runs on the hosts: NETLAB_ROLE says
// what it does there.
func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv("NETLAB_ROLE"); role {
	case "":
		leak.Beside(8)
		leak.Main(m)
		return
	case "serve":
		err = serve()
	case "note":
		err = note()
	case "hold":
		hold()
	case "polite":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("holding")
		<-asked
		os.Exit(5)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		hold()
	case "spin":
		err = spin()
	case "hoard":
		err = hoard()
	case "family":
		err = family()
	case "abandon":
		err = abandon()
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// hold does nothing until a signal ends it.
func hold() {
	fmt.Println("holding", os.Getpid())
	select {}
}

// spin keeps two threads busy; for each line that it reads, a duration, it writes one
// when they have used that much more processor time.
func spin() error {
	used := func() time.Duration {
		var now syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &now); err != nil {
			panic(err)
		}
		return time.Duration(now.Utime.Nano() + now.Stime.Nano())
	}
	go func() {
		for {
			used()
		}
	}()
	l, err := net.Listen("tcp4", ":7000")
	if err != nil {
		return err
	}
	fmt.Println("spinning")
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	in := bufio.NewScanner(conn)
	for in.Scan() {
		more, err := time.ParseDuration(in.Text())
		if err != nil {
			return err
		}
		for end := used() + more; used() < end; {
		}
		fmt.Fprintln(conn, "used")
	}
	return in.Err()
}

// hoard takes 64 MiB and tells so, once it is in the control group of its host: it may have begun before.
func hoard() error {
	const page = 4 << 10
	for {
		groups, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return err
		}
		if strings.Contains(string(groups), "/"+os.Getenv("NETLAB_GROUP")+"\n") {
			break
		}
	}
	all := make([]byte, 64<<20)
	for i := 0; i < len(all); i += page {
		all[i] = 1
	}
	fmt.Println("hoarded", len(all))
	return nil
}

// note adds a line to a file in the working directory, and exits with status 0
// when there are three.
func note() error {
	f, err := os.OpenFile("starts", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	fmt.Fprintln(f, os.Getpid())
	if err := f.Close(); err != nil {
		return err
	}
	lines, err := os.ReadFile("starts")
	if err != nil {
		return err
	}
	n := bytes.Count(lines, []byte("\n"))
	fmt.Println("start", n)
	switch n {
	case 1:
		select {} // to be killed
	case 2:
		os.Exit(3)
	}
	return nil
}

// family holds with two children: one in its process group, one that left it.
func family() error {
	for _, own := range []bool{false, true} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "NETLAB_ROLE=hold")
		cmd.Stdout = os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: own}
		if err := cmd.Start(); err != nil {
			return err
		}
		if own {
			fmt.Println("runaway", cmd.Process.Pid)
		} else {
			fmt.Println("child", cmd.Process.Pid)
		}
	}
	select {}
}

// abandon makes a lab with a running family and waits to be killed.
func abandon() error {
	lab, err := netlab.New(context.Background(), 1)
	if err != nil {
		return err
	}
	host := lab.Host(0)
	if err := netlab.Limits(); err == nil {
		if err := host.SetCPU(1); err != nil {
			return err
		}
	}
	p, err := host.Start(netlab.Command{Path: os.Args[0], Env: []string{"NETLAB_ROLE=family"}, Log: os.Stdout})
	if err != nil {
		return err
	}
	fmt.Println("leader", p.PID())
	fmt.Println("namespace", host.Name())
	select {}
}

// serve listens on port 7000. A TCP client's first line says what it wants:
//
//	echo     its bytes back
//	take N   one byte back once it has sent N bytes
//	give N   N bytes
//	count    how many datagrams came, once none has come for a second
func serve() error {
	tcp, err := net.Listen("tcp4", ":7000")
	if err != nil {
		return err
	}
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 7000})
	if err != nil {
		return err
	}
	if err := forceReadBuffer(udp, 8<<20); err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		conn, err := tcp.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			if err := answer(conn, udp); err != nil {
				fmt.Println(err)
			}
		}()
	}
}

func answer(conn net.Conn, udp *net.UDPConn) error {
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	verb, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	var n int64
	switch verb {
	case "echo":
		_, err = io.Copy(conn, in)
	case "take":
		if _, err = fmt.Sscanf(line, "take %d", &n); err == nil {
			if _, err = io.CopyN(io.Discard, in, n); err == nil {
				_, err = conn.Write([]byte{1})
			}
		}
	case "give":
		if _, err = fmt.Sscanf(line, "give %d", &n); err == nil {
			_, err = conn.Write(make([]byte, n))
		}
	case "count":
		buf := make([]byte, 2048)
		for {
			if err := udp.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				return err
			}
			if _, err := udp.Read(buf); err != nil {
				break
			}
			n++
		}
		_, err = fmt.Fprintln(conn, n)
	default:
		err = fmt.Errorf("no verb %q", verb)
	}
	return err
}

// log collects a program's output and lets tests wait for its lines.
type log struct {
	mu      sync.Mutex
	text    bytes.Buffer
	rest    string // of a line that is not complete
	lines   []string
	changed chan struct{}
}

func newLog() *log { return &log{changed: make(chan struct{})} }

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	parts := strings.Split(l.rest+string(b), "\n")
	l.lines = append(l.lines, parts[:len(parts)-1]...)
	l.rest = parts[len(parts)-1]
	close(l.changed)
	l.changed = make(chan struct{})
	return len(b), nil
}

// await takes the first line that begins with prefix and returns what follows.
func (l *log) await(ctx context.Context, t *testing.T, prefix string) string {
	t.Helper()
	for {
		l.mu.Lock()
		for i, line := range l.lines {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				l.lines = append(l.lines[:i], l.lines[i+1:]...)
				l.mu.Unlock()
				return strings.TrimSpace(rest)
			}
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Fatalf("no line %q…: %v; the log:\n%s", prefix, ctx.Err(), l.text.String())
		}
	}
}
