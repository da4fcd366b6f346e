package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/graph/pieces"
)

// piecesRun is a run over a partition set of four pieces on four hosts, three of which have a store of members.
type piecesRun struct {
	*netCluster
	args     []string
	set      string
	full     bool // global batches, of which nodes say epochs; else batches of their own, and groups
	replicas int
}

// startPieces deals a block model of four pieces, one to each host, and trains over it. In the same time three times as many global batches
// are made as epochs of others.
func startPieces(t *testing.T, full bool, replicas, epochs int) *piecesRun {
	t.Helper()
	r := &piecesRun{netCluster: startStores(t, 4, 3), full: full, replicas: replicas}
	whole := filepath.Join(r.dir, "whole")
	r.set = filepath.Join(r.dir, "set")
	mustInvoke(t, "generate", "sbm", whole, "--nodes", "8192", "--classes", "4", "--features", "16", "--degree", "8", "--train", "0.1")
	mustInvoke(t, "partition", "--data", whole, "--parts", "4", "--method", "contiguous", "--out", r.set)
	r.args = []string{"--model", "gcn", "--hidden", "16", "--threads", "1", "--seed", "3"}
	if full {
		r.args = append(r.args, "--sampler", "full", "--epochs", fmt.Sprint(3*epochs))
	} else {
		r.args = append(r.args, "--micro-batches", "8", "--batch-size", "128", "--fanouts", "5,5", "--eval-every", "0", "--baseline=false", "--epochs", fmt.Sprint(epochs))
	}
	r.dealPieces(r.set, 4)
	r.begin(r.nodes)
	return r
}

// begin trains on some of the hosts.
func (r *piecesRun) begin(nodes []*netNode) {
	r.t.Helper()
	r.nodes = nodes
	r.trainEach(func(n *netNode) []string {
		return append([]string{"--data", r.data(n), "--replicas", fmt.Sprint(r.replicas)}, r.args...)
	})
}

var trained = regexp.MustCompile(`epoch (\d+) of \d+: loss`)

// trainedEpochs is how many a node says that it has trained.
func trainedEpochs(log string) int {
	all := trained.FindAllStringSubmatch(log, -1)
	if len(all) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(all[len(all)-1][1]) // digits
	return n
}

// goesOn waits until all nodes train together, and further than they were.
func (r *piecesRun) goesOn() {
	r.t.Helper()
	if !r.full {
		r.settled()
		return
	}
	reached := 0
	for _, n := range r.nodes {
		reached = max(reached, trainedEpochs(n.log.String()))
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	further := make(chan error, len(r.nodes))
	for _, n := range r.nodes {
		go func() {
			further <- n.log.await(ctx, func(s string) bool {
				return trainedEpochs(s) > reached || strings.Contains(s, `"parameters_sha256"`)
			})
		}()
	}
	for range r.nodes {
		if err := <-further; err != nil {
			r.t.Fatalf("not all nodes go on after epoch %d: %v", reached, err)
		}
	}
	for _, n := range r.nodes {
		if strings.Contains(n.log.String(), `"parameters_sha256"`) {
			r.t.Fatalf("%s was done before the disturbance: more epochs are needed", n.name)
		}
	}
}

// same waits for the end, and compares it with what one process makes of the same pieces. No node waited for a piece that another one
// was to hold.
func (r *piecesRun) same() {
	r.t.Helper()
	for _, n := range r.nodes {
		state, err := n.process.Wait(r.ctx)
		if err != nil || !state.Success() {
			r.t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
		}
		if r.replicas > 1 && strings.Contains(n.log.String(), missing) {
			r.t.Errorf("%s waited for a piece that another node holds", n.name)
		}
	}
	one := alone(r.t, append([]string{"--data", r.set}, r.args...))
	if !r.full {
		r.finish(one)
		return
	}
	for _, n := range r.nodes {
		got := resultOf(r.t, n.log.String())
		if got.SHA == "" || got.SHA != one.SHA || got.TestAccuracy != one.TestAccuracy {
			r.t.Errorf("%s: parameters %s, accuracy %v, not those of one process: %s, %v", n.name, got.SHA, got.TestAccuracy, one.SHA, one.TestAccuracy)
		}
	}
}

// missing is what is said of a piece that nobody holds.
const missing = "waiting for pieces that no node holds"

// killEach kills nodes in turn; each is back before the next goes. What nobody else holds is waited for, by its name
// and the node that had it, unless that is back before its lease ends.
func (r *piecesRun) killEach(victims []int, every time.Duration) {
	began := time.Now()
	for k, v := range victims {
		if wait := time.Until(began.Add(time.Duration(k) * every)); wait > 0 {
			<-time.After(wait)
		}
		r.goesOn()
		var from []int
		for _, n := range r.nodes {
			from = append(from, len(n.log.String()))
		}
		starts := r.nodes[v].process.Starts()
		at := r.kill(v)
		if err := r.nodes[v].process.Await(r.ctx, starts+1); err != nil {
			r.t.Fatal(err)
		}
		r.goesOn()
		r.t.Logf("n%d killed: all train %.1f s later", v, time.Since(at).Seconds())
		if r.replicas == 1 {
			r.missed(v, from)
		}
	}
}

// missed waits until another node has gone on without a node that was killed, and judges what nodes said since: from there on in their logs.
func (r *piecesRun) missed(v int, from []int) {
	r.t.Helper()
	k, again := (v+1)%4, "the group made its first step"
	if r.full {
		again = "resumed after"
	}
	if err := r.nodes[k].log.await(r.ctx, func(s string) bool { return strings.Contains(s[from[k]:], again) }); err != nil {
		r.t.Fatalf("%s does not go on: %v", r.nodes[k].name, err)
	}
	says := fmt.Sprintf("pieces=[%d] were-at=[n%d]", v, v)
	said := slices.ContainsFunc(r.nodes, func(n *netNode) bool { // whoever asks for it waits
		s := n.log.String()[from[slices.Index(r.nodes, n)]:]
		return strings.Contains(s, missing) && strings.Contains(s, says)
	})
	switch {
	case said:
	case v < len(r.stores): // with it a store died, whose next leader renews all leases
		r.t.Logf("n%d was back before its lease ended: nobody missed its piece", v)
	default:
		r.t.Errorf("no node says that the piece of n%d is waited for", v)
	}
}

// during has something be wrong for a while.
func (r *piecesRun) during(name string, d time.Duration, begin, end func() error) {
	r.t.Helper()
	r.goesOn()
	r.fault(name)
	if err := begin(); err != nil {
		r.t.Fatal(err)
	}
	<-time.After(d)
	if err := end(); err != nil {
		r.t.Fatal(err)
	}
	ended := time.Now()
	r.goesOn()
	r.t.Logf("%s of %v: all train %.1f s after its end", name, d, time.Since(ended).Seconds())
}

func (r *piecesRun) freeze(i int, d time.Duration) {
	r.during("freeze", d, func() error { return stop(i, syscall.SIGSTOP)(r.netCluster) }, func() error { return stop(i, syscall.SIGCONT)(r.netCluster) })
}

func (r *piecesRun) cut(i int, d time.Duration) {
	r.during("cut", d, func() error { return r.nodes[i].host.Cut() }, r.nodes[i].host.Mend)
}

func (r *piecesRun) lose(i int, d time.Duration) {
	r.during("loss", d, func() error { return r.nodes[i].host.Loss(5) }, func() error { return r.nodes[i].host.Loss(0) })
}

// Four hosts with a piece each train, with batches of their own and with global ones, while one is killed, one stands still, one is cut off and one loses
// packets: to the bits of one process, each step once.
func TestNetPieceFaults(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(map[bool]string{false: "sampled", true: "global"}[full], func(t *testing.T) {
			r := startPieces(t, full, 2, 120)
			r.killEach([]int{3}, 0)
			r.freeze(2, 5*time.Second)
			r.same()
		})
	}
}

// Any node is killed every 15 s for 2 minutes; another time nodes stand still, are cut off for 20 s and lose packets.
func TestNetPieceFaultsLong(t *testing.T) {
	n := longEpochs(t)
	for _, full := range []bool{false, true} {
		for replicas := 1; replicas <= 2; replicas++ {
			name := fmt.Sprintf("%s, %d replicas", map[bool]string{false: "sampled", true: "global"}[full], replicas)
			t.Run(name+", kills", func(t *testing.T) {
				r := startPieces(t, full, replicas, n)
				r.killEach([]int{3, 0, 1, 2, 0, 3, 1, 2}, 15*time.Second)
				r.same()
			})
			t.Run(name+", disturbed", func(t *testing.T) {
				r := startPieces(t, full, replicas, n)
				r.freeze(3, 6*time.Second)
				r.freeze(0, 20*time.Second)
				r.cut(1, 20*time.Second)
				r.cut(0, 20*time.Second)
				r.lose(2, 20*time.Second)
				r.same()
			})
		}
	}
}

// A node that is drained hands its piece over: nobody waits for it, the others go on to the same bits, and what it leaves is taken from it, not
// from the start of the run. Of global batches it computes until then, and no step is made twice.
func TestNetPieceDrains(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(map[bool]string{false: "sampled", true: "global"}[full], func(t *testing.T) {
			r := startPieces(t, full, 1, map[bool]int{false: 200, true: 600}[full])
			r.goesOn()
			log := newOutput(t, "drain")
			drain := r.start(r.nodes[0].host, log, []string{"cluster", "drain", r.endpoints[0], "n3", "--node", "n0", "--certs", r.certs()})
			if state, err := drain.Wait(r.ctx); err != nil || !state.Success() {
				t.Fatalf("%v, %v:\n%s", state, err, log)
			}
			gone := r.nodes[3]
			if state, err := gone.process.Wait(r.ctx); err != nil || !state.Success() {
				t.Fatalf("%v, %v:\n%s", state, err, ending(gone.log.String()))
			}
			if strings.Contains(gone.log.String(), `"parameters_sha256"`) {
				t.Fatal("it was done before it drained: more epochs are needed")
			}
			r.nodes = r.nodes[:3]
			r.goesOn()
			r.same()
			for _, n := range r.nodes {
				log := n.log.String()
				if strings.Contains(log, missing) {
					t.Errorf("%s waited for the piece of a node that drained:\n%s", n.name, ending(log))
				}
				if full && (strings.Contains(log, "pieces are computed again") || !strings.Contains(log, "pieces are computed by other nodes")) {
					t.Errorf("%s stopped, and did not take over between two steps:\n%s", n.name, ending(log))
				}
				all := trained.FindAllStringSubmatch(log, -1)
				for i := 1; i < len(all); i++ {
					was, _ := strconv.Atoi(all[i-1][1])
					is, _ := strconv.Atoi(all[i][1])
					if is < was+1 || is > was+2 || full && is > was+1 { // of a group it may hear of a step from another node
						t.Errorf("%s trained epoch %d after epoch %d", n.name, is, was)
					}
				}
			}
			if here, err := filepath.Glob(filepath.Join(r.dir, "data-n[012]", pieces.PieceName(3))); err != nil || len(here) != 1 {
				t.Errorf("the piece of n3 lies in %v, %v", here, err)
			}
		})
	}
}

// All nodes are killed at once; two of them, between which all pieces lie now, go on from what they kept.
func TestNetPiecesElsewhere(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(map[bool]string{false: "sampled", true: "global"}[full], func(t *testing.T) {
			r := startPieces(t, full, 1, 100)
			// Something is kept of an epoch.
			kept := func(n *netNode) bool {
				all, _ := filepath.Glob(filepath.Join(r.dir, n.name, "checkpoint", "step-*"))
				return len(all) > 0
			}
			if err := r.nodes[2].log.await(r.ctx, func(string) bool { return kept(r.nodes[2]) }); err != nil {
				t.Fatal(err)
			}
			for _, n := range r.nodes {
				n.process.End()
				if _, err := n.process.Wait(r.ctx); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(n.log.String(), `"parameters_sha256"`) {
					t.Fatalf("%s was done before it was killed: more epochs are needed", n.name)
				}
			}
			for i, from := range []int{0, 3} { // n1 has its own and that of n0, n2 its own and that of n3
				name := pieces.PieceName(from)
				if err := os.Rename(filepath.Join(r.data(r.nodes[from]), name), filepath.Join(r.data(r.nodes[1+i]), name)); err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range r.nodes[1:3] {
				n.log = newOutput(t, n.name+"-again")
			}
			r.begin(slices.Clone(r.nodes[1:3]))
			r.same()
			for _, n := range r.nodes {
				if !strings.Contains(n.log.String(), "resumed after") {
					t.Errorf("%s began anew:\n%s", n.name, ending(n.log.String()))
				}
			}
		})
	}
}
