package scheduler

import (
	"fmt"
	"strings"
)

const (
	// ahead is how many batches hold slots: one that is computed, one that is
	// ready, and those that are read.
	aheadOfLoaders = 2
	loaders        = 2
	// A probe's largest batch is exceeded by a quarter at most, in all likelihood.
	marginNum, marginDen = 5, 4
)

// KeepShare is of how many parts of a device's memory tables that it keeps may take one.
const KeepShare = 2

func margin(rows int64) int64 { return times(rows, marginNum)/marginDen + 1 }

// enough is more than any machine has: bounds stay there.
const enough = int64(1) << 60

// times and plus are of bounds that are not negative.
func times(a, b int64) int64 {
	if b != 0 && a > enough/b {
		return enough
	}
	return min(a*b, enough)
}

func plus(a, b int64) int64 { return min(a+b, enough) }

// share returns n things dealt out to k.
func share(n, k int) int { return (n + k - 1) / max(k, 1) }

func cachedToo(rows int64) string {
	if rows == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d cached", rows)
}

// Loads reports whether rows are brought to a slab for compute, and why, or
// why not.
func Loads(s *Sizes, r Request) (bool, string) {
	switch {
	case s.RowBytes == 0:
		return false, "there are no features"
	case s.Sampler == "full":
		return false, "every batch is the whole graph, and reads the whole table where it lies"
	case s.SparseInput:
		return false, "most feature values are zero: the model holds the others in memory"
	case s.Source != "ram" && s.Source != "mmap":
		return true, "features come from " + s.Source
	case r.Match == "on":
		return true, "as asked for"
	case s.Cache != "":
		return true, "a cache was asked for"
	case s.DeviceRows && r.Match == "off":
		return true, "as asked for: the rows of every batch go over the bus"
	case s.DeviceRows && s.FeatureBytes > s.Device/KeepShare:
		return true, fmt.Sprintf("the table is %s, and a device of %s keeps one of no more than half of that", mebibytes(s.FeatureBytes), mebibytes(s.Device))
	case s.Device > 0 && s.FeatureBytes <= s.Device/KeepShare:
		return false, "the device keeps the whole table: the first layer aggregates straight from it"
	}
	return false, "features lie in the memory that compute reads (" + s.Source + "): the first layer aggregates straight from the table"
}

// memoryIO decides on the stages between sampler and compute.
func (p *Plan) memoryIO(s *Sizes, r Request) (why string) {
	p.Load, why = Loads(s, r)
	p.Match = p.Load && r.Match != "off"
	if r.Reorder > 1 {
		p.Reorder = r.Reorder
	}
	if !p.Load {
		return why
	}
	p.Loaders = r.Loaders
	if p.Loaders == 0 {
		p.Loaders = loaders
		if r.tight >= narrow {
			p.Loaders = 1
		}
	}
	p.Ahead = max(p.Loaders+aheadOfLoaders, 2*r.Late)
	if strings.HasPrefix(s.Cache, "dynamic:") {
		p.CacheRows = s.CachedRows
	}
	return why
}

// ordered returns the bytes of what an order depends on of a batch whose micro-batches have so many input nodes each:
// ids and bits, or hashes. Processes that share steps tell each other of it, in ids and their bytes.
func (s *Sizes) ordered(inputs int64, shared bool) int64 {
	if s.Sketch > 0 {
		inputs = min(inputs, s.Sketch)
	}
	told := times(inputs, int64(max(s.Micro, 1)))
	all := min(told, s.Nodes)
	bytes := times(4, all) + min(times(16, all), s.Nodes/8)
	if s.Sketch > 0 {
		bytes = 16 * min(told, s.Sketch)
	}
	if shared {
		bytes = plus(bytes, times(12, told))
	}
	return bytes
}

// mayCopy reports whether rows are copied together, now or once that was measured.
func (p *Plan) mayCopy(r Request) bool {
	return p.Copied || r.Gather == "" && !r.Shared && r.tight < settled
}

// whyGather says how compute gets at a batch's rows.
func (p *Plan) whyGather(r Request) string {
	switch {
	case !p.gathers:
		return ""
	case r.Gather != "":
		return "; " + gatherName(p.Copied) + ", as asked for"
	case !p.mayCopy(r):
		return "; the fused gather"
	}
	return "; the fused gather, until the copied one measures faster"
}

// cacheToo says what of the slab's limit is for.
func (p *Plan) cacheToo() string {
	if p.CacheRoom == 0 {
		return ""
	}
	return fmt.Sprintf(" for a batch of the largest size or a dynamic cache of %d that measuring adds", p.CacheRoom)
}

// bounds says how far Refine may go. Its peak is what the plan prints.
func (p *Plan) bounds(r Request) {
	p.MaxLoaders, p.MaxAhead = p.Loaders, p.Ahead
	if p.Load && r.Loaders == 0 && r.tight < settled {
		p.MaxLoaders = max(p.Loaders, maxLoaders)
		p.MaxAhead += p.MaxLoaders - p.Loaders
	}
	p.MaxBatches = p.MaxSamplers * p.Credits
	if r.Credits == 0 && r.tight < settled {
		under := max(p.Samplers*p.Credits, p.MaxSamplers*maxCredits)
		if p.Load {
			under = max(under, p.MaxAhead+1)
		}
		p.MaxBatches = 0
		for samplers := 1; samplers <= p.MaxSamplers; samplers++ { // each has whole credits
			p.MaxBatches = max(p.MaxBatches, samplers*share(under, samplers))
		}
	}
}

// stagesIO lists them.
func (p *Plan) stagesIO(s *Sizes, r Request, why string) {
	add := func(name string, n int, why string) { p.Stages = append(p.Stages, Stage{name, n, why}) }
	leave := func(name, why string) { p.LeftOut = append(p.LeftOut, Stage{name, 0, why}) }
	switch {
	case p.Reorder != 0:
		add("reorder", 1, fmt.Sprintf("greedy by match degree over windows of %d batches, as asked for", p.Reorder))
	case p.Load:
		leave("reorder", "it changes the order of batches, and so results: only when asked for")
	default:
		leave("reorder", "nothing is loaded")
	}
	switch {
	case p.Load && s.Cache != "":
		add("cache", 1, fmt.Sprintf("%s: %d rows", s.Cache, s.CachedRows))
	case p.Load && r.Cached:
		leave("cache", "as asked for")
	case p.CacheRoom > 0:
		leave("cache", fmt.Sprintf("none was asked for; measuring adds a dynamic one of %d rows if load is what the others wait for and it pays", p.CacheRoom))
	case p.Load:
		leave("cache", "none was asked for")
	}
	if !p.Load {
		leave("match", why)
		leave("load", "nothing is moved")
		return
	}
	if p.Match {
		add("match", 1, fmt.Sprintf("rows that the %d batches before hold are not read again", p.MaxAhead))
	} else {
		add("match", 1, "every batch reads all of its rows, as asked for")
	}
	why = fmt.Sprintf("%s; %d batches may hold slots", why, p.Ahead)
	if p.Registered > 0 {
		why += "; the device reads rows from the host's memory itself if that measures faster"
	}
	add("load", p.Loaders, why)
}

// slab sizes the slab (docs/algorithms.md §7): the most inputs of a batch, what each
// other batch ahead adds, and the cache; one batch of the largest size must fit.
// It is sized for the most batches that measuring may put ahead: those are kept
// from the start, so that what is read follows from the batches' order alone.
func (p *Plan) slab(s *Sizes, r Request, inputs, bound int64) {
	others := inputs
	if p.Match && s.NewRows > 0 {
		others = min(inputs, margin(s.NewRows))
	}
	cached := s.CachedRows
	p.SlabRows = inputs + int64(p.MaxAhead)*others + cached
	p.SlabLimit = bound + cached
	if p.Match {
		p.SlabRows, p.SlabLimit = min(p.SlabRows, s.Nodes+cached), min(p.SlabLimit, s.Nodes+cached)
	}
	p.SlabLimit = max(p.SlabLimit, p.SlabRows)
	if p.Match && !r.Cached && r.tight < settled {
		// Where a batch of the largest size needs the slab's limit, the cache makes room.
		p.CacheRoom = min(p.SlabRows/4, s.Nodes-p.SlabRows)
		p.SlabLimit = max(p.SlabLimit, p.SlabRows+p.CacheRoom)
	}
}
