// Package messages holds what the actors say to each other.
//
// Within a process a message carries a pointer to memory with one owner: who
// receives the message owns the memory, and hands it back with a Credit. Between
// nodes those that are a Message travel, the same structs as msgpack (Marshal), bulk
// numbers in them as little-endian bytes; of a Sampled a ticket for its batch, whose
// bytes (AppendBatch) go over the data plane. The others stay in their process, as a
// trainer's stages do.
//
// Data flows forward, Credits backward: a stage sends only what it has credit
// for, so every queue is bounded although mailboxes are not.
package messages

import (
	"fmt"

	"github.com/gnnactor/gnnactor/sampling"
)

// Message is what one process tells another. Kind names it on the wire.
type Message interface{ Kind() string }

// Credit lets its receiver send N more messages to worker From of the stage
// that grants it. A sampler grants credit to the source when it is idle; the
// consumer of a batch grants it to the batch's sampler on release.
type Credit struct {
	From int
	N    int
}

// Seeds asks a sampler for the micro-batch ID of global step Step, or for something else that
// it knows of the graph. The slice is shared and read-only.
type Seeds struct {
	ID    sampling.ID `msgpack:"i"`
	Step  int64       `msgpack:"s"`
	Seeds Uint32s     `msgpack:"v"`
	Want  Want        `msgpack:"w,omitempty"`
	// Answer is what was wanted, as it came from another process.
	Answer []byte `msgpack:"-"`
	// Run is a hash of what the batch depends on, where it is another process that
	// samples; it knows the seeds by the ID then.
	Run string `msgpack:"r,omitempty"`
}

// Want is what a process that has no topology asks a sampler elsewhere for; empty: a
// micro-batch. The answers are pure functions of the graph, the run and the question.
type Want string

// What is wanted.
const (
	WantDraw  Want = "draw"  // a batch from Seeds by the key of ID, of no training
	WantRows  Want = "rows"  // the complete rows of Seeds, as a batch of one block
	WantEdges Want = "edges" // WantRows with EdgeIDs
	WantHops  Want = "hops"  // all that Seeds may see over Step hops under temporal constraints, as a batch
	WantCache Want = "cache" // Nodes: the generation Step of GNS's cache
	WantTop   Want = "top"   // Nodes: the Step nodes of the most edges
	WantLinks Want = "links" // Nodes: of the links of split Step from Seeds[0] to Seeds[1] the ends, and those of the pairs that each is measured against
	WantFacts Want = "facts" // Facts; with Step 1 those of degrees, with 2 of GCN's normalisation, too, with 3 and 4 likewise of the graph that training sees
)

// Nodes answers what wants nodes.
type Nodes struct {
	Nodes Uint32s `msgpack:"n"`
}

// Facts answers WantFacts: what is found out of a graph once.
type Facts struct {
	Run     string         `msgpack:"r"` // a hash of what batches depend on there
	Sampler sampling.Facts `msgpack:"s"`
	Links   Uint32s        `msgpack:"k"` // in link prediction, how many there are of each split
	Degrees Uint32s        `msgpack:"d"` // these are compute.Facts
	InvSqrt Float32s       `msgpack:"i"`
	Loops   Float32s       `msgpack:"l"`
}

// Sampled hands over a sampled micro-batch. The receiver owns Batch until it
// releases it and grants sampler From one Credit.
type Sampled struct {
	Step  int64           `msgpack:"s"`
	From  int             `msgpack:"f"`
	Batch *sampling.Batch `msgpack:"-"`
	// Ticket names the batch's bytes (AppendBatch) on the data plane of the node that
	// sampled it, which another node fetches; Batch is nil then.
	Ticket []byte `msgpack:"k"`
}

// Matched hands a batch that has its slots to the load stage, with the rows
// that are still missing. Slices alias memory that the match stage lends until
// it is told Released.
type Matched struct {
	Step  int64
	From  int
	Batch *sampling.Batch
	Slots []uint32 // the slot of each input
	Rows  []uint32 // nodes whose rows have to be read,
	To    []uint32 // and into which slots
}

// Loaded hands a batch whose rows are all in their slots to whoever computes
// it, which owns Batch and reads the slots until it releases them: it then
// tells the match stage Released and grants sampler From one Credit. A stage of
// the program's own between them copies the rows to X, which the receiver owns,
// and releases the slots itself.
type Loaded struct {
	Step  int64
	From  int
	Batch *sampling.Batch
	Slots []uint32
	X     []float32 // the inputs' rows, as many values for each; nil: see Slots
}

// Released tells the match stage that nobody reads the slots of micro-batch
// Micro of step Step any more.
type Released struct {
	Step  int64
	Micro int
}

// Tune changes how a stage works and what it may have under way: no result depends
// on it.
type Tune struct {
	Samplers int  // samplers that work; the others rest
	Credits  int  // batches that each of them may have out
	Ahead    int  // batches that may hold slots
	Loaders  int  // reads that may be under way
	Cache    int  // rows that no batch needs any more, and that stay for later ones
	Threads  int  // of a trainer's kernels; 0: all
	Copied   bool // a trainer copies a batch's rows together first, in place of reading them where they lie
}

// Begun tells the cache stage that the first batch of an epoch was matched.
type Begun struct {
	Epoch int
}

// Stats are sums over the nodes that carry loss.
type Stats struct {
	Loss    float64 `msgpack:"l"` // weighted sum of the losses
	Weight  float64 `msgpack:"w"` // sum of the weights
	Correct int     `msgpack:"c"` // nodes whose class was predicted
	Count   int     `msgpack:"n"` // nodes
}

// Add adds o to s.
func (s *Stats) Add(o Stats) {
	s.Loss += o.Loss
	s.Weight += o.Weight
	s.Correct += o.Correct
	s.Count += o.Count
}

// Gradient carries the summed gradient of one micro-batch, computed by trainer
// From against parameter version Step. The receiver owns Data.
type Gradient struct {
	ID    sampling.ID
	Step  int64
	From  int
	Stats Stats
	Data  []float32
}

// Version publishes the parameters that the batches of global step Step are to
// be computed with. Params is shared and read-only until every micro-batch of
// the step has been answered with a Gradient.
type Version struct {
	Step   int64
	Params []float32
}

// Applied reports that a global batch has been applied; ID.Micro is 0.
type Applied struct {
	ID    sampling.ID
	Step  int64
	Stats Stats
	Last  bool // the last batch of its epoch
}

// Proceed lets the parameters actor publish version Step, the first one of an
// epoch. Between two epochs nothing is computed until it comes.
type Proceed struct {
	Step int64
}

// Placed tells the parameters actor of a reordered run that is shared with other
// processes which batch of its epoch Step computes: none of its micro-batches may be
// this process's.
type Placed struct {
	Step  int64
	Batch int
}

// Inputs tells the processes that share the steps of a reordered run what its order depends on of
// the micro-batches that one of them has: of the windows' batches, and of the one that ran last before.
type Inputs struct {
	Parts []InputPart `msgpack:"p"`
}

// InputPart is a micro-batch's overlap.Part.
type InputPart struct {
	Step  int64  `msgpack:"s"` // of its batch's index
	Micro int    `msgpack:"m"`
	All   bool   `msgpack:"a,omitempty"` // every node of the graph, and nothing else is said
	Size  int    `msgpack:"n"`
	Nodes Rising `msgpack:"v"`
}

// Failed reports that a stage could not do a batch; it ends the run.
type Failed struct {
	ID    sampling.ID
	Stage string
	Err   error
}

// Error names the batch, the stage and the cause.
func (f *Failed) Error() string {
	if f.ID == (sampling.ID{}) {
		return fmt.Sprintf("%s: %v", f.Stage, f.Err)
	}
	return fmt.Sprintf("%s: %s: %v", f.ID, f.Stage, f.Err)
}

// Unwrap returns the cause.
func (f *Failed) Unwrap() error { return f.Err }

// Drain asks an actor to start nothing new; it closes Idle once it is idle, and ignores
// whatever comes after.
type Drain struct {
	Idle chan struct{}
}

// Snapshot asks the parameters actor for a copy of the parameters; Reply has room for it.
type Snapshot struct {
	Reply chan<- *State
}

// State answers Snapshot: the parameters after Step applied batches. The
// receiver owns the slice.
type State struct {
	Step   int64
	Params []float32
}

// Kind names the message on the wire.
func (*Seeds) Kind() string   { return "seeds" }
func (*Nodes) Kind() string   { return "nodes" }
func (*Facts) Kind() string   { return "facts" }
func (*Sampled) Kind() string { return "sampled" }
func (*Inputs) Kind() string  { return "inputs" }
