package training

import "context"

// Until returns a context that ends with ctx, and, with why as its cause, when over is closed. The caller
// must call end, which ends it, and waits for what has waited for over.
func Until(ctx context.Context, over <-chan struct{}, why error) (until context.Context, end func()) {
	until, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-over:
			cancel(why)
		case <-until.Done():
		}
	}()
	return until, func() {
		cancel(nil)
		<-watched
	}
}
