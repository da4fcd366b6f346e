package runtime

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// stateChange sets a field of a checkpoint's metadata.
type stateChange struct{ field, value, want string }

// in returns text, of a checkpoint's metadata, with the change.
func (x stateChange) in(t testing.TB, text string) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	if x.value == "" {
		delete(fields, x.field)
	} else {
		fields[x.field] = json.RawMessage(x.value)
	}
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// stateChanges are of a run of one epoch of 6 batches, with a reorder window and a
// plateau; each is refused.
var stateChanges = []stateChange{
	{"version", "3", "version 3"},
	{"version", "-1", "version -1"},
	{"step", "-1", "step -1 is not in"},
	{"step", "4611686018427387904", "step 4611686018427387904 is not in"},
	{"step", "1099511627776", "step 1099511627776 is not in"},
	{"step", "9223372036854775808", "not a checkpoint"},
	{"step", "12", "lineage [{0 0 6}] does not lead to step 12"},
	{"step", "18", "1 epochs have ended after step 18"},
	{"step", "7", "lineage [{0 0 6}] does not lead to step 7"},
	{"step", "", "1 epochs have ended after step 0"},
	{"ended", "-5", "-5 epochs have ended"},
	{"ended", "1000000000", "1000000000 epochs have ended"},
	{"epoch", `{"Loss":1e308,"Weight":-1,"Correct":-5,"Count":4611686018427387904}`, "statistics"},
	{"epoch", `{"Count":1}`, "statistics of an epoch that step 6 does not begin"},
	{"last", `{"Weight":1,"Correct":3,"Count":2}`, "the last epoch's statistics"},
	{"last", `{"Weight":1,"Correct":3,"Count":4611686018427387904}`, "the last epoch's statistics"},
	{"after", "-1", "batch -1"},
	{"after", "6", "batch 6"},
	{"best", `{"Figure":1e308,"Epoch":-9,"Since":-1152921504606846976,"Count":-1}`, "the best accuracy"},
	{"best", `{"Figure":0.5,"Epoch":0,"Since":0,"Count":2}`, "the best accuracy"},
	{"kept", "", "the best parameters are not there"},
	{"kept", `{"epochs":2,"figure":0.5}`, "the best parameters are those of epoch 2, with the figure 0.5, of 1 epochs"},
	{"kept", `{"epochs":1,"figure":2}`, "the best parameters are those of epoch 1, with the figure 2"},
	{"plateau", `{"Factor":0.5,"Patience":10,"Min":0,"Best":{"Figure":0.5,"Count":1},"Scale":-1}`, "scale -1"},
	{"plateau", `{"Factor":0.5,"Patience":10,"Min":0,"Best":{"Figure":0.5,"Count":1},"Scale":1e300}`, "scale 1e+300"},
	{"plateau", `{"Factor":2,"Patience":10,"Min":0,"Best":{"Figure":0.5,"Count":1},"Scale":1}`, "factor 2"},
	{"plateau", `{"Scale":0.5}`, "a plateau where there was none"},
	{"lineage_sha256", `"00"`, "lineage hash of 2 characters"},
	{"lineage", `[{"group":0,"first":0,"next":4611686018427387904}]`, "does not lead to step 6"},
	{"lineage", `[{"group":-1,"first":-7,"next":6}]`, "does not lead to step 6"},
	{"lineage", `[{"group":0,"first":0,"next":2},{"group":1,"first":3,"next":6}]`, "does not lead to step 6"},
}

// A checkpoint that says what no run can have come to is refused, although its
// checksums are right; so is one of before there were any.
func TestCheckpointBounds(t *testing.T) {
	c := config()
	c.Training.Schedule, c.Training.Keep, c.Sampling.Reorder = "plateau", "best", 2
	tensors, meta, good, e := stateOf(t, c)
	text := meta[checkpoint.Key]
	old := *good
	old.Sum, old.Version = e.Layout.SHA256(good.Params)+e.Layout.SHA256(good.M)+e.Layout.SHA256(good.V), 0
	b, err := json.Marshal(&old)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := e.Decode("old", tensors, map[string]string{checkpoint.Key: string(b)}); err != nil || c.Version != 0 {
		t.Fatalf("a checkpoint of version 0: %v", err)
	}
	for _, change := range stateChanges {
		meta[checkpoint.Key] = change.in(t, text)
		if _, err := e.Decode("new", tensors, meta); err == nil || !strings.Contains(err.Error(), change.want) {
			t.Errorf("%s %s: %v, want %q", change.field, change.value, err, change.want)
		}
		if change.field == "version" {
			continue
		}
		before := map[string]string{checkpoint.Key: change.in(t, string(b))}
		if _, err := e.Decode("old", tensors, before); err == nil || !strings.Contains(err.Error(), change.want) {
			t.Errorf("before checksums, %s %s: %v, want %q", change.field, change.value, err, change.want)
		}
	}
	meta[checkpoint.Key] = text
	delete(meta, compute.ChecksumKey)
	if _, err := e.Decode("new", tensors, meta); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("without its checksums: %v", err)
	}
}

// Every flipped bit and every truncation of a checkpoint is refused, or changes
// nothing. Of the bits it takes every fifth, with GNNACTOR_SOAK all.
func TestCheckpointDamage(t *testing.T) {
	c := config()
	c.Model.Hidden, c.Model.Layers, c.Sampling.Fanouts = 1, 1, []int{4}
	tensors, meta, good, e := stateOf(t, c)
	var b bytes.Buffer
	if err := compute.WriteSafetensors(&b, tensors, meta); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	same, stride := 0, 5
	if os.Getenv("GNNACTOR_SOAK") != "" {
		stride = 1
	}
	for i := 0; i < 8*len(file); i += stride {
		file[i/8] ^= 1 << (i % 8)
		if c, err := e.FromPeer(file); err == nil {
			if same++; !reflect.DeepEqual(c, good) {
				t.Errorf("bit %d of byte %d: another state", i%8, i/8)
			}
		}
		file[i/8] ^= 1 << (i % 8)
		if i%8 == 0 || stride > 1 {
			if _, err := e.FromPeer(file[:i/8]); err == nil {
				t.Errorf("%d of %d bytes are a checkpoint", i/8, len(file))
			}
		}
	}
	if same > 2000 { // of white space, the case of names and hexadecimal digits
		t.Errorf("%d flips change nothing", same)
	}
	t.Logf("%d bits; %d flips change nothing", 8*len(file), same)
}

// resumes resumes a run and returns what it said and its parameters.
func resumes(t *testing.T, c Config) (said, sum string, err error) {
	t.Helper()
	r := started(t, c)
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			return said, "", err
		}
		if e.Kind == EventStart {
			said = e.Message
		}
	}
	return said, sumOf(t, r), nil
}

// A run whose newest checkpoint is damaged, cut off or misnamed goes on from the
// one before, says so and ends with the same bits. One of before there were
// checksums serves, and the run says what it lacks.
func TestResumeFromDamage(t *testing.T) {
	c := config()
	c.Checkpoint.Dir = t.TempDir()
	r := started(t, c)
	trained(t, r)
	want, files := sumOf(t, r), mustCheckpoints(t, c.Checkpoint.Dir)
	if len(files) != 3 {
		t.Fatalf("checkpoints %v", files)
	}
	newest, older := mustRead(t, files[1]), mustRead(t, files[2])
	at := bytes.Index(newest, []byte(`\"step\":12`)) + len(`\"step\":1`)
	flipped := bytes.Clone(newest)
	flipped[at] ^= 1
	before := withoutChecksums(t, newest)
	for name, x := range map[string]struct {
		file []byte
		want []string
	}{
		"flip":      {flipped, []string{"resumed after 6 batches", "passed over a damaged one", filepath.Base(files[1]), "header, bytes 0 to"}},
		"truncated": {newest[:len(newest)-100], []string{"resumed after 6 batches", "data ends early"}},
		"empty":     {nil, []string{"resumed after 6 batches", "shorter than the 8 bytes"}},
		"misnamed":  {older, []string{"resumed after 6 batches", "is of step 6, which is not what its name says"}},
		"old":       {before, []string{"resumed after 12 batches", "of an older version", "of the step and the statistics nothing tells"}},
		"whole":     {newest, []string{"resumed after 12 batches"}},
	} {
		c := c
		c.Checkpoint.Dir, c.Checkpoint.Resume = t.TempDir(), true
		for file, b := range map[string][]byte{files[1]: x.file, files[2]: older} {
			if err := os.WriteFile(filepath.Join(c.Checkpoint.Dir, filepath.Base(file)), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		said, sum, err := resumes(t, c)
		for _, w := range x.want {
			if !strings.Contains(said, w) {
				t.Errorf("%s: said %q, want %q", name, said, w)
			}
		}
		if err != nil || sum != want {
			t.Errorf("%s: other bits, or %v", name, err)
		}
	}
	c.Checkpoint.Dir, c.Checkpoint.Resume = t.TempDir(), true
	if err := os.WriteFile(checkpoint.Path(c.Checkpoint.Dir, 12), flipped, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := resumes(t, c); !errors.Is(err, compute.ErrSafetensors) || !strings.Contains(err.Error(), "remove them to start afresh") {
		t.Errorf("nothing but a damaged checkpoint: %v", err)
	}
}

func mustCheckpoints(t *testing.T, dir string) []string {
	t.Helper()
	files, err := checkpoint.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withoutChecksums returns a checkpoint's file as it was written before there were
// checksums over all of it.
func withoutChecksums(t *testing.T, file []byte) []byte {
	t.Helper()
	n := 8 + binary.LittleEndian.Uint64(file)
	var header map[string]json.RawMessage
	var meta map[string]string
	if err := errors.Join(json.Unmarshal(file[8:n], &header), json.Unmarshal(header["__metadata__"], &meta)); err != nil {
		t.Fatal(err)
	}
	tensors, _, err := compute.ReadSafetensors(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	sum := ""
	for _, prefix := range []string{"param.", "adam.m.", "adam.v."} {
		var values []float32
		for _, x := range tensors { // by name
			if strings.HasPrefix(x.Name, prefix) {
				v, err := x.Float32s()
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, v...)
			}
		}
		l, err := compute.NewLayout([]compute.Param{{Name: "all", Shape: []int{len(values)}}})
		if err != nil {
			t.Fatal(err)
		}
		sum += l.SHA256(values)
	}
	text := stateChange{"version", "", ""}.in(t, meta[checkpoint.Key])
	text = stateChange{"sha256", `"` + sum + `"`, ""}.in(t, text)
	plain, err := json.Marshal(map[string]string{checkpoint.Key: text})
	if err != nil {
		t.Fatal(err)
	}
	header["__metadata__"] = plain
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...), file[n:]...)
}
