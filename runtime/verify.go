package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gnnactor/gnnactor/graph/store"
)

// verification reads the run's data in the background and compares them with
// their checksums. What leaves the run for good, final figures, saved parameters
// and checkpoints, waits for its end, and damage ends every call. So nothing that
// was computed from damaged data outlives the run.
type verification struct {
	done   chan struct{}           // closed at the end
	err    error                   // after done: the damage, or why it was not looked for to the end
	damage context.Context         // ends when damage is found, with it as its cause
	found  context.CancelCauseFunc // ends it
}

// verify begins a verification of stores, which ends with ctx.
func verify(ctx context.Context, cfg *settings, stores []*store.Store, log *slog.Logger) *verification {
	v := &verification{done: make(chan struct{})}
	v.damage, v.found = context.WithCancelCause(context.Background())
	if len(stores) == 0 || !cfg.Data.Verify {
		close(v.done)
		return v
	}
	go func() {
		defer close(v.done)
		began := time.Now()
		for _, s := range stores {
			if v.err == nil {
				v.err = damaged(s.Check(ctx, store.CheckOptions{WithoutEdgeFeatures: !cfg.Model.EdgeFeatures}))
			}
		}
		switch {
		case v.err == nil:
			log.Info("the data is what was written", "took", time.Since(began))
		case ctx.Err() != nil:
			v.err = fmt.Errorf("%w: %w", ErrStopped, errUnverified)
		default:
			v.found(v.err)
		}
	}()
	return v
}

// Verified waits until all of the data that the run reads was compared with its
// checksums, and returns what is wrong with it: an error that names file and
// offsets. It returns nil at once for data that is no store, and without
// Config.Data.Verify. Train, Batches, BaselineAccuracy and Save, and those that
// evaluate, wait for it before they give their last result; Embed and Predict do not, so that they
// answer at once, but fail when damage was found.
func (r *Runtime) Verified(ctx context.Context) error {
	v := r.verification
	select {
	case <-v.done:
		return r.data.checked(v.err)
	default:
	}
	select {
	case <-v.done:
		return r.data.checked(v.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errUnverified says why an interrupted run keeps no checkpoint.
var errUnverified = errors.New("runtime: the data was not verified to its end yet")

// verifyLimit is how long the last checkpoint of an interrupted run waits; tests
// shorten it.
var verifyLimit = 3 * time.Second

// verifiedSoon is Verified for a run that is to end.
func (r *Runtime) verifiedSoon() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), verifyLimit, errUnverified)
	defer cancel()
	err := r.Verified(ctx)
	if errors.Is(err, errUnverified) {
		err = fmt.Errorf("%w: steps since the last checkpoint are not kept", err)
	}
	return err
}
