package trainers

// Mates returns the trainers of the newest group that this node was in, itself
// included: the revisions at which they joined the cluster, by name.
func (t *Trainers) Mates() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]int64, len(t.mates))
	for _, m := range t.mates {
		all[m.Node] = m.Epoch
	}
	return all
}
