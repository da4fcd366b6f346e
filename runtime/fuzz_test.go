package runtime

import (
	"bytes"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
)

// Whatever another node gives as its state, it is one of this run or an error.
func FuzzState(f *testing.F) {
	c := DefaultConfig()
	c.Hidden, c.Threads, c.BatchSize = 4, 1, 512
	r, err := Start(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := r.Stop(); err != nil {
			f.Error(err)
		}
	})
	l := r.model.Layout()
	good := checkpoint{Identity: r.identity, Step: 3, params: r.params, m: make([]float32, l.Len()), v: make([]float32, l.Len())}
	var b bytes.Buffer
	if err := good.write(&b, l); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()/2])
	f.Add(bytes.Replace(b.Bytes(), []byte(`\"step\":3`), []byte(`\"step\":-`), 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		tensors, meta, err := compute.ReadSafetensors(bytes.NewReader(b))
		if err != nil {
			return
		}
		c, err := decodeCheckpoint("fuzz", tensors, meta, l, r.identity, false)
		if err == nil && (len(c.params) != l.Len() || len(c.m) != l.Len() || len(c.v) != l.Len() || c.Step < 0) {
			t.Fatalf("a state of %d values at step %d is taken", len(c.params), c.Step)
		}
	})
}
