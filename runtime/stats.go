package runtime

import "cmp"

// Stats are what a Runtime has counted since Start, all at one moment. They can be had at
// any time and from any goroutine, while it trains or serves, and after Stop.
type Stats struct {
	Steps   int64    `json:"steps"`   // global batches that Train applied
	Batches int64    `json:"batches"` // micro-batches that Batches handed out
	Rows    RowStats `json:"rows"`    // of every Train and Batches: rows, bytes, and what was there already

	Calls     int `json:"calls"`     // in progress: of Train, Batches, Embed and all others that take a context
	InFlight  int `json:"in_flight"` // micro-batches of the training that are sampled, loaded or computed, or wait for that
	Inferring int `json:"inferring"` // calls that compute exact inference, at most Plan.Inferences
	Waiting   int `json:"waiting"`   // calls that wait for one of those to end

	SlabBytes      int64 `json:"slab_bytes"`      // of rows that slabs hold
	InferenceBytes int64 `json:"inference_bytes"` // that Inferring may take, by the plan

	// Bytes over the bus to the device that computes, and back; 0 where the processor does.
	ToDevice int64 `json:"to_device_bytes,omitempty"`
	ToHost   int64 `json:"to_host_bytes,omitempty"`
	// DevicePeak is the most bytes that were taken of the device's memory, of several the one's that had the most.
	DevicePeak int64 `json:"device_peak_bytes,omitempty"`
}

// Stats returns a snapshot.
func (r *Runtime) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.counted
	for m := range r.live {
		s.Rows.add(m.stats())
		s.SlabBytes += int64(m.slab.Stats().Used) * m.rowBytes
	}
	if p := cmp.Or(r.training, r.late); p != nil {
		s.InFlight = p.InFlight()
	}
	s.Inferring, s.Waiting = len(r.inference), r.waiting
	s.InferenceBytes = int64(s.Inferring) * r.plan.InferenceBytes
	if r.device != nil {
		for _, d := range append(r.others[:len(r.others):len(r.others)], r.device) {
			there, back := d.Moved()
			s.ToDevice, s.ToHost = s.ToDevice+there, s.ToHost+back
			s.DevicePeak = max(s.DevicePeak, d.Peak())
		}
	}
	return s
}
