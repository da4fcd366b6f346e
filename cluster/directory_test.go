package cluster

import (
	"errors"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// A node that was away when its run ended is told so once, and waits for the next one
// then; a node that came to the end itself takes part again if it wants the same.
func TestRunEndedMeanwhile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	a, b := enter(t, options(s, "a", dirs["a"])), enter(t, options(s, "b", dirs["b"]))
	want := func() *Run { return &Run{Settings: settings(64)} }
	if _, err := a.AgreeOnRun(within(t), want(), true, nothing); err != nil {
		t.Fatal(err)
	}
	if _, err := b.AgreeOnRun(within(t), nil, true, nothing); err != nil {
		t.Fatal(err)
	}
	leave(t, b) // before the end
	if err := a.Finish(within(t)); err != nil {
		t.Fatal(err)
	}
	leave(t, a)

	b = enter(t, options(s, "b", dirs["b"]))
	if r, err := b.AgreeOnRun(within(t), nil, true, nothing); !errors.Is(err, ErrEnded) {
		t.Fatalf("took part in %+v, %v", r, err)
	}
	a = enter(t, options(s, "a", dirs["a"]))
	if _, err := a.AgreeOnRun(within(t), want(), true, nothing); err != nil {
		t.Errorf("who had come to the end: %v", err)
	}
	await(t, b, "a takes part", func(v *membership.View) bool { m, _ := v.Member("a"); return m.Run != 0 })
	if _, err := b.AgreeOnRun(within(t), nil, true, nothing); err != nil {
		t.Errorf("the second time: %v", err)
	}
}
