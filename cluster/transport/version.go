package transport

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/metadata"
)

// WireVersion is of all that nodes say to each other, on either plane. It goes up with a
// change that a node of before would misread, or not know.
const WireVersion = "12"

// MetaVersion names a node's WireVersion in the gRPC metadata of both ends of a stream.
const MetaVersion = "gnnactor-version"

// ErrVersion is wrapped where two nodes do not speak the same version.
var ErrVersion = errors.New("transport: another wire version")

// CheckVersion reports that the other end of a stream, which said md, speaks another
// version, or none at all. node is who it is, as far as is known.
func CheckVersion(md metadata.MD, node string) error {
	v := md.Get(MetaVersion)
	if len(v) == 1 && v[0] == WireVersion {
		return nil
	}
	said := "none"
	if len(v) > 0 {
		said = fmt.Sprintf("%.20q", v[0])
	}
	if node == "" {
		node = "(unnamed)"
	}
	return fmt.Errorf("%w: node %.80s speaks %s, and this one %q; run one version of gnnactor on all nodes", ErrVersion, node, said, WireVersion)
}
