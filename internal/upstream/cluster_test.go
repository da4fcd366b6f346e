package upstream

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/cluster/identitylookup/disthash"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// told is a cluster provider whose members are told by hand.
type told struct{}

func (told) StartMember(*cluster.Cluster) error { return nil }
func (told) StartClient(*cluster.Cluster) error { return nil }
func (told) Shutdown(bool) error                { return nil }

const kind = "answers"

// newCluster has a kind whose actors answer with where they are.
func newCluster(gossip time.Duration) *cluster.Cluster {
	props := actor.PropsFromFunc(func(c actor.Context) {
		if _, ok := c.Message().(*wrapperspb.StringValue); ok {
			c.Respond(wrapperspb.String(c.ActorSystem().Address()))
		}
	})
	config := cluster.Configure("upstream", told{}, disthash.New(), remote.Configure("127.0.0.1", 0), cluster.WithKinds(cluster.NewKind(kind, props)))
	config.GossipInterval = gossip
	return cluster.New(newSystem(), config)
}

func start(gossip time.Duration, n int) []*cluster.Cluster {
	all := make([]*cluster.Cluster, n)
	var wg sync.WaitGroup
	for i := range all {
		all[i] = newCluster(gossip)
		wg.Go(all[i].StartMember) // which sleeps a second
	}
	wg.Wait()
	return all
}

func members(all ...*cluster.Cluster) (list cluster.Members) {
	for _, c := range all {
		host, port, err := c.ActorSystem.GetHostPort()
		if err != nil {
			panic(err)
		}
		list = append(list, &cluster.Member{Id: c.ActorSystem.ID, Host: host, Port: int32(port), Kinds: c.GetClusterKinds()})
	}
	return list
}

func owner(identity string, of cluster.Members) string {
	r := cluster.NewRendezvous()
	r.UpdateMembers(of)
	return r.GetByClusterIdentity(cluster.NewClusterIdentity(identity, kind))
}

// activateTwice tells a third member's coming to the old owner of an identity and to
// the new one; then the member that has not heard asks the old one. At the end all
// have heard.
func activateTwice() error {
	all := start(24*time.Hour, 3)
	a, b, c := all[0], all[1], all[2]
	before, after := members(a, b), members(a, b, c)
	identity := ""
	for i := 0; identity == ""; i++ {
		if name := fmt.Sprint("x", i); owner(name, before) == a.ActorSystem.Address() && owner(name, after) == c.ActorSystem.Address() {
			identity = name
		}
	}
	ask := func(who *cluster.Cluster) string {
		answer, err := who.Request(identity, kind, wrapperspb.String("where are you?"))
		if err != nil {
			return err.Error()
		}
		return answer.(*wrapperspb.StringValue).Value
	}
	b.MemberList.UpdateClusterTopology(before)
	a.MemberList.UpdateClusterTopology(after)
	c.MemberList.UpdateClusterTopology(after)
	first := ask(b)
	b.MemberList.UpdateClusterTopology(after)
	for _, m := range all {
		if n := m.MemberList.Members().Len(); n != 3 {
			return fmt.Errorf("a member knows of %d; want 3", n)
		}
	}
	byB, byC := ask(b), ask(c)
	if first != a.ActorSystem.Address() || byC != c.ActorSystem.Address() {
		return fmt.Errorf("first %q, then %q by the one and %q by the other", first, byB, byC)
	}
	if byB != byC {
		fmt.Printf("%s: %s is active at %s and at %s\n", seen, identity, byB, byC)
	}
	return nil
}

// retry takes the first pause between retries ten times: the least is not the
// machine's doing.
func retry() error {
	options := cluster.NewGrainCallOptions(newCluster(24 * time.Hour))
	least := time.Hour
	for range 10 {
		began := time.Now()
		options.RetryAction(0)
		least = min(least, time.Since(began))
	}
	if least < 25*time.Millisecond {
		fmt.Printf("%s: the first pause of 50 ms lasts %v\n", seen, least)
	}
	return nil
}

// leakOptions forbids retries to one request, and makes another.
func leakOptions() error {
	c := start(24*time.Hour, 1)[0]
	c.MemberList.UpdateClusterTopology(members(c))
	ask := func(o ...cluster.GrainCallOption) error {
		_, err := c.RequestFuture("x", kind, wrapperspb.String("where are you?"), o...)
		return err
	}
	if err := ask(); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	if ask(cluster.WithRetryCount(0)) == nil {
		return errors.New("a request without a try was made")
	}
	if err := ask(); err != nil {
		fmt.Printf("%s: a request without options: %v\n", seen, err)
	}
	return nil
}

// gossip lets three members gossip while they answer.
func gossip() error {
	all := start(5*time.Millisecond, 3)
	for _, c := range all {
		c.MemberList.UpdateClusterTopology(members(all...))
	}
	for i := range 2000 {
		if _, err := all[i%3].Request(fmt.Sprint("x", i%10), kind, wrapperspb.String("where are you?")); err != nil {
			return err
		}
	}
	return nil
}
