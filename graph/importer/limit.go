package importer

import (
	"io"
	"math"

	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// What an import makes is bounded by what it was given: a short file can name a
// large node, a number of nodes or of columns, or unpack to any length. All that
// its bytes do not hold one by one (row bounds and labels of nodes, tables that
// are written out from a sparse form, what is unpacked) may take freeExpansion
// bytes and MaxExpansion times the bytes of the files read so far. Nodes that the
// option NumNodes counts are free.
const (
	freeExpansion    = 32 << 20
	defaultExpansion = 1024
	nodeBytes        = 16 // a row bound, a label, a split
)

// allowed returns how many bytes more may be claimed.
func (im *importer) allowed() int64 {
	ratio := int64(im.o.MaxExpansion)
	if ratio == 0 {
		ratio = defaultExpansion
	}
	if im.src.bytes > (math.MaxInt64-freeExpansion)/ratio {
		return math.MaxInt64 - im.claimed
	}
	return freeExpansion + ratio*im.src.bytes - im.claimed
}

// claim asks for n bytes, what of path, before they are made.
func (im *importer) claim(n int64, path, what string) error {
	left := im.allowed()
	if n > left {
		return dataerr.Bad("%s: %s: with it %d bytes from an input of %d; if that is right, allow it (the option MaxExpansion, --max-expansion %d or more)",
			path, what, im.claimed+n, im.src.bytes, (im.claimed+n)/max(im.src.bytes, 1)+1)
	}
	im.claimed += n
	return nil
}

// claimNodes asks for what the nodes take, the first time that it is called.
func (im *importer) claimNodes() error {
	if im.o.NumNodes > 0 || im.nodesClaimed {
		return nil
	}
	if im.nodes*nodeBytes > im.allowed() {
		return dataerr.Bad("%s: %d nodes are far more than an input of %d bytes tells of; if that is right, say it (the option NumNodes, --num-nodes %d)",
			im.nodesFrom, im.nodes, im.src.bytes, im.nodes)
	}
	im.claimed += im.nodes * nodeBytes
	im.nodesClaimed = true
	return nil
}

// unpacking claims what is read through it.
type unpacking struct {
	im   *importer
	r    io.Reader
	path string
}

func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err == nil || err == io.EOF {
		if e := u.im.claim(int64(n), u.path, "unpacked"); e != nil {
			return 0, e
		}
	}
	return n, err
}
