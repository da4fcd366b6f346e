package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A node that hands over is waited for while the store answers and something moves, for
// so long and no longer; by the bubble's clock.
func TestUntilStuck(t *testing.T) {
	const limit = time.Minute
	for name, c := range map[string]struct {
		frozen, still time.Duration // when the store stops to answer, and things stop to move
		want          string
		least, most   time.Duration
	}{
		"all is well":               {time.Hour, time.Hour, "within 1m0s", limit, limit + time.Second},
		"the store is away":         {0, time.Hour, "the store has not answered", unanswering, unanswering + time.Second},
		"the store goes away later": {7 * time.Second, time.Hour, "the store has not answered", 7 * time.Second, 7*time.Second + unanswering + time.Second},
		"nothing moves":             {time.Hour, 0, "nothing has moved", standing, standing + time.Second},
		"nothing moves any more":    {time.Hour, 21 * time.Second, "nothing has moved", 21*time.Second + standing, 21*time.Second + standing + time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ask := func(ctx context.Context) error {
				if time.Since(began) >= c.frozen {
					<-ctx.Done()
				}
				return ctx.Err()
			}
			look := func() moved { return moved{step: int64(min(time.Since(began), c.still) / (3 * time.Second))} }
			err := untilStuck(t.Context(), limit, ask, look)
			if took := time.Since(began); !errors.Is(err, ErrStuck) || !strings.Contains(err.Error(), c.want) || took < c.least || took > c.most {
				t.Errorf("%s: after %v: %v", name, took, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := untilStuck(ctx, limit, ask, look); err != nil {
				t.Errorf("%s: whose context ended: %v", name, err)
			}
		})
	}
}
