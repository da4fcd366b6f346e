package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// crc32c is the checksum bit by bit, by its definition (RFC 3720, B.4).
func crc32c(data []byte) uint32 {
	c := ^uint32(0)
	for _, x := range data {
		c ^= uint32(x)
		for range 8 {
			c = c>>1 ^ 0x82f63b78*(c&1)
		}
	}
	return ^c
}

// records reads a file of TFRecord's form, as TensorFlow's documentation has it, and checks both checksums of each record.
func records(t *testing.T, file []byte) (all [][]byte) {
	t.Helper()
	if crc32c([]byte("123456789")) != 0xe3069283 {
		t.Fatal("the test's checksum is not CRC-32C")
	}
	masked := func(data []byte) uint32 {
		c := crc32c(data)
		return (c>>15 | c<<17) + 0xa282ead8
	}
	for len(file) > 0 {
		n := binary.LittleEndian.Uint64(file)
		if got, want := binary.LittleEndian.Uint32(file[8:]), masked(file[:8]); got != want {
			t.Fatalf("record %d: the length's checksum is %x, want %x", len(all), got, want)
		}
		data := file[12 : 12+n]
		if got, want := binary.LittleEndian.Uint32(file[12+n:]), masked(data); got != want {
			t.Fatalf("record %d: the checksum is %x, want %x", len(all), got, want)
		}
		all, file = append(all, data), file[16+n:]
	}
	return all
}

// wireFields reads a message of protocol buffers: field number and wire type, as its tag has them, to values.
func wireFields(t *testing.T, message []byte) map[uint64][][]byte {
	t.Helper()
	all := map[uint64][][]byte{}
	for len(message) > 0 {
		tag, k := binary.Uvarint(message)
		message = message[k:]
		n := 0
		switch tag & 7 {
		case 0:
			_, n = binary.Uvarint(message)
		case 1:
			n = 8
		case 5:
			n = 4
		case 2:
			size, k := binary.Uvarint(message)
			message, n = message[k:], int(size)
		default:
			t.Fatalf("a field of tag %#x", tag)
		}
		all[tag], message = append(all[tag], message[:n]), message[n:]
	}
	return all
}

// TensorBoard's files have each epoch's figures, those of --metrics; a run that goes on adds a file, one that is refused leaves nothing.
func TestTensorBoard(t *testing.T) {
	store, dir := storeOf(t, twoRings(t)), filepath.Join(t.TempDir(), "events")
	run, log := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "m.csv")
	args := []string{"train", "--data", store, "--batch-size", "20", "--eval-every", "2", "--checkpoint", run, "--resume", "--tensorboard", dir, "--metrics", log, "--epochs"}
	if code, _, errs := invoke(t, append(args, "2", "--class-weights", "1")...); code == exitDone {
		t.Errorf("exit %d: %s", code, errs)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a refused run left its directory: %v", err)
	}
	mustInvoke(t, append(args, "2")...)
	mustInvoke(t, append(args, "3")...)
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("files %v, %v", files, err)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	names, epoch, last := strings.Split(lines[0], ","), 0, 0.0
	for _, name := range files { // in the order of their times
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// TensorFlow's own files begin so: a record of 24 bytes, and the checksum of that.
		if !bytes.HasPrefix(file, []byte("\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\"\x09")) {
			t.Errorf("%s begins with %q", name, file[:13])
		}
		for i, r := range records(t, file) {
			event := wireFields(t, r)
			const wallTime, step, fileVersion, summary, value, tag, simpleValue = 1<<3 | 1, 2 << 3, 3<<3 | 2, 5<<3 | 2, 1<<3 | 2, 1<<3 | 2, 2<<3 | 5
			if at := math.Float64frombits(binary.LittleEndian.Uint64(event[wallTime][0])); at < last {
				t.Errorf("an event at %v, after one at %v", at, last)
			} else {
				last = at
			}
			if i == 0 {
				if len(event[fileVersion]) != 1 || string(event[fileVersion][0]) != "brain.Event:2" {
					t.Errorf("the version is %q", event[fileVersion])
				}
				continue
			}
			epoch++
			if n, _ := binary.Uvarint(event[step][0]); n != uint64(epoch) {
				t.Errorf("step %d, want %d", n, epoch)
			}
			want := map[string]string{}
			for k, cell := range strings.Split(lines[epoch], ",") {
				if cell != "" && k > 0 {
					want[names[k]] = cell
				}
			}
			for _, v := range wireFields(t, event[summary][0])[value] {
				f := wireFields(t, v)
				x := math.Float32frombits(binary.LittleEndian.Uint32(f[simpleValue][0]))
				name := string(f[tag][0])
				if y, err := strconv.ParseFloat(want[name], 64); err != nil || x != float32(y) {
					t.Errorf("epoch %d: %s is %v, want %q", epoch, name, x, want[name])
				}
				delete(want, name)
			}
			if len(want) > 0 {
				t.Errorf("epoch %d lacks %v", epoch, want)
			}
		}
	}
	if epoch != 3 {
		t.Errorf("%d epochs", epoch)
	}
	if code, _, errs := invoke(t, "train", "--tensorboard", log); code != exitUsage || !strings.Contains(errs, "that is no directory") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
