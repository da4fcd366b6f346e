package compute

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ChecksumKey is the metadata key under which WriteSafetensors puts checksums:
// CRC32C in hex, first of the header, then of each tensor's bytes, by name. That
// of the header is over what it says, the tensors' checksums included, and not
// over its text, so that other programs may lay out the same content anew.
// Files without the key, of other writers, are read unchecked.
const ChecksumKey = "gnnactor.crc32c"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// byName returns the tensors in the order of checksums.
func byName(tensors []RawTensor) []*RawTensor {
	order := make([]*RawTensor, len(tensors))
	for i := range tensors {
		order[i] = &tensors[i]
	}
	slices.SortFunc(order, func(a, b *RawTensor) int { return cmp.Compare(a.Name, b.Name) })
	return order
}

// headerSum is the checksum of what a header says; order is byName.
func headerSum(order []*RawTensor, sums []uint32, metadata map[string]string) uint32 {
	h := crc32.New(castagnoli)
	for i, t := range order {
		fmt.Fprintf(h, "%q %s %v %08x\n", t.Name, t.DType, t.Shape, sums[i])
	}
	for _, k := range slices.Sorted(maps.Keys(metadata)) {
		if k != ChecksumKey {
			fmt.Fprintf(h, "%q %q\n", k, metadata[k])
		}
	}
	return h.Sum32()
}

// checksums returns the value of ChecksumKey.
func checksums(tensors []RawTensor, metadata map[string]string) string {
	order := byName(tensors)
	sums := make([]uint32, len(order))
	for i, t := range order {
		sums[i] = crc32.Checksum(t.Data, castagnoli)
	}
	text := fmt.Appendf(nil, "%08x", headerSum(order, sums, metadata))
	for _, s := range sums {
		text = fmt.Appendf(text, " %08x", s)
	}
	return string(text)
}

// verify compares the checksums of metadata, if there are any, with what was
// read; the data of tensors begins at byte at of the file, and lies in their
// order.
func verify(tensors []RawTensor, metadata map[string]string, at int64) error {
	text, ok := metadata[ChecksumKey]
	if !ok {
		return nil
	}
	const remedy = "take an intact copy; if another program wrote the file anew, have it leave out the metadata " + ChecksumKey
	words := strings.Fields(text)
	if len(words) != 1+len(tensors) {
		return fmt.Errorf("%d checksums of a header and %d tensors; %s", len(words), len(tensors), remedy)
	}
	sums := make([]uint32, len(words))
	for i, w := range words {
		s, err := strconv.ParseUint(w, 16, 32)
		if err != nil {
			return fmt.Errorf("%q is no checksum; %s", w, remedy)
		}
		sums[i] = uint32(s)
	}
	order := byName(tensors)
	if headerSum(order, sums[1:], metadata) != sums[0] {
		return fmt.Errorf("the header, bytes 0 to %d of the file, does not match its checksum; %s", at, remedy)
	}
	want := make(map[*RawTensor]uint32, len(order))
	for i, t := range order {
		want[t] = sums[1+i]
	}
	for i := range tensors {
		t := &tensors[i]
		end := at + int64(len(t.Data))
		if crc32.Checksum(t.Data, castagnoli) != want[t] {
			return fmt.Errorf("tensor %q, bytes %d to %d of the file, does not match its checksum; %s", t.Name, at, end, remedy)
		}
		at = end
	}
	return nil
}
