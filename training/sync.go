package training

import (
	"fmt"
	"strconv"
	"strings"
)

// Sync is how trainers work together. The zero value is synchronous: all on the same
// parameters, with the same bits for any number of them. BoundedStaleness returns the other.
type Sync struct {
	asynchronous bool
	bound        int
}

// MaxBound keeps a slip of the keyboard from meaning no bound at all.
const MaxBound = 1 << 10

// BoundedStaleness is each batch by one trainer on the newest parameters that it can have, of which its
// gradient may be up to bound steps late, bound in [0, 1024]. Asynchronous runs cannot be
// repeated bit for bit, but where all pieces of a partition set compute each batch. See package actors/async.
func BoundedStaleness(bound int) Sync { return Sync{true, bound} }

// Asynchronous reports whether gradients may be late.
func (s Sync) Asynchronous() bool { return s.asynchronous }

// Bound returns BoundedStaleness's bound; 0 for the synchronous mode.
func (s Sync) Bound() int { return s.bound }

// String returns sync, or ssp:N.
func (s Sync) String() string {
	if !s.asynchronous {
		return "sync"
	}
	return "ssp:" + strconv.Itoa(s.bound)
}

// MarshalText implements encoding.TextMarshaler, as String.
func (s Sync) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler: it reads what String returns; of
// nothing, sync.
func (s *Sync) UnmarshalText(text []byte) error {
	if len(text) == 0 || string(text) == "sync" {
		*s = Sync{}
		return nil
	}
	bound, _ := strconv.Atoi(strings.TrimPrefix(string(text), "ssp:")) // what it fails on is written otherwise
	if read := BoundedStaleness(bound); read.Valid() && read.String() == string(text) {
		*s = read
		return nil
	}
	return fmt.Errorf("sync: %q is neither sync nor ssp:N, where N, the most steps that a gradient may be late, is in [0, %d]", text, MaxBound)
}

// Valid reports whether the bound is one that there may be.
func (s Sync) Valid() bool { return s.bound >= 0 && s.bound <= MaxBound }
