package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
)

// Manifest is the name of the file that makes a directory a store.
const Manifest = "store.json"

const (
	manifestFormat   = "gnnactor-store"
	maxManifestBytes = 1 << 20
	arrayFileSuffix  = ".bin"
)

// manifest is the content of store.json. The file is exactly the encoding of
// this struct, so any changed byte is found when the store is opened.
type manifest struct {
	Format     string        `json:"format"`
	Version    int           `json:"version"` // the newest that an array file may have, or namedVersion
	Name       string        `json:"name"`
	NumNodes   int64         `json:"num_nodes"`
	NumEdges   int64         `json:"num_edges"`
	NumClasses int64         `json:"num_classes"`
	Arrays     []arrays.Info `json:"arrays"`
	// Partitions have an array each, listed after the data's own.
	Partitions []manifestPartition `json:"partitions,omitempty"`
	// Piece is set in a piece of a divided graph; NumNodes are then the nodes of the piece.
	Piece *PieceOf `json:"piece,omitempty"`
	// SplitLabels is the SHA-256 of the labels with those outside of the
	// splits masked; see Dataset.ContentHash.
	SplitLabels string `json:"split_labels_sha256,omitempty"`
	Fingerprint string `json:"fingerprint"`
	Checksum    string `json:"manifest_sha256"` // of this document with an empty checksum
}

func (m *manifest) array(name string) *arrays.Info { return arrays.Find(m.Arrays, name) }

// namedVersion is the manifest's version where nodes have names or there is a recipe, which
// programs that read version 2 do not know.
const namedVersion = 3

// setArrays lists the arrays, and sets the version that they need.
func (m *manifest) setArrays(list []arrays.Info) {
	m.Version, m.Arrays = storeVersion, list
	for _, name := range []string{arrays.NodeIDs, arrays.NodeNames, arrays.Recipe} {
		if m.array(name) != nil {
			m.Version = namedVersion
		}
	}
}

func (m *manifest) fingerprint() string {
	return arrays.Fingerprint(m.Arrays, m.NumClasses, m.SplitLabels)
}

func (m *manifest) marshal() []byte {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return append(b, '\n')
}

// encode fills in the fingerprint and the checksum and returns the file.
func (m *manifest) encode() []byte {
	m.Format = manifestFormat
	m.Name = strings.ToValidUTF8(m.Name, "\uFFFD")
	m.Fingerprint = m.fingerprint()
	m.Checksum = ""
	sum := sha256.Sum256(m.marshal())
	m.Checksum = hex.EncodeToString(sum[:])
	return m.marshal()
}

// decodeManifest reads store.json and checks that it is whole.
func decodeManifest(b []byte) (*manifest, error) {
	var version struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, fmt.Errorf("it is not valid JSON (%v)", err)
	}
	if version.Format != manifestFormat {
		return nil, fmt.Errorf("its format is %q, want %q", version.Format, manifestFormat)
	}
	if version.Version < 1 || version.Version > namedVersion {
		return nil, fmt.Errorf("version %d, but this program reads versions 1 to %d", version.Version, namedVersion)
	}
	m := new(manifest)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("it is not a store's manifest (%v)", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is something after the manifest")
	}
	again := *m
	if !bytes.Equal(again.encode(), b) {
		return nil, fmt.Errorf("it is damaged: its checksum does not match its content")
	}
	seen := map[string]bool{}
	for i := range m.Arrays {
		if a := &m.Arrays[i]; seen[a.Name] || !knownArray(a.Name) {
			return nil, fmt.Errorf("array %q is unknown or listed twice", a.Name)
		}
		seen[m.Arrays[i].Name] = true
	}
	return m, nil
}

func knownArray(name string) bool {
	// Of a partition's, check looks for the partition that it belongs to.
	return isPartitionArray(name) || slices.Contains(arrays.Names, name)
}
