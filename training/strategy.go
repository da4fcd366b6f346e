package training

import "context"

// Strategy is how the steps of a run are made: by this process alone, synchronously by
// all members of a group, or with bounded staleness by one of them for all. A run has
// one, and calls its methods one at a time.
type Strategy interface {
	// Begin readies what can be before this process has the state of a step at which a group
	// will go on; what was begun for another group is dropped. Enter may not follow.
	Begin(ctx context.Context, g Group, step int64) error
	// Enter goes on from the run's state in a group; nil: alone. Leave must follow.
	Enter(ctx context.Context, g Group) error
	// Epoch makes those steps of an epoch that the state has not. An error that wraps
	// actors.ErrReduce: the group is over.
	Epoch(ctx context.Context, epoch int) error
	// Leave ends what Begin and Enter began, if they did, when the run's state has all steps
	// that were made. why is what ended it, and is returned with what went wrong here.
	Leave(ctx context.Context, why error) error
}

// State is what a run of training does. It goes through the states in their order, but for each
// epoch back from Ending to Stepping, and to Meeting whenever a group is over.
type State int32

// The states of a run.
const (
	Idle      State = iota // nothing is trained
	Opening                // it finds the state to go on from, a fresh one or a checkpoint's
	Meeting                // it waits for a group of nodes, and for the state of the furthest of them
	Stepping               // it makes the steps of an epoch
	Ending                 // an epoch is over: its audits come back, it is evaluated and kept
	Finishing              // the last step is made: it waits until all nodes have, and takes the final figures
)

var stateNames = [...]string{"idle", "opening", "meeting", "stepping", "ending an epoch", "finishing"}

// String returns the state in a word or two.
func (s State) String() string { return stateNames[s] }
