package graph

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// The arrays that a store may hold, in the order in which the manifest lists
// them; each lies in a file of that name plus ".bin".
const (
	arrayIndptr             = "indptr"
	arrayIndices            = "indices"
	arrayWeights            = "weights"
	arrayNodeFeatures       = "node-features"
	arrayNodeRowScale       = "node-features-row-scale"
	arrayNodeColScale       = "node-features-col-scale"
	arrayEdgeFeatures       = "edge-features"
	arrayEdgeRowScale       = "edge-features-row-scale"
	arrayEdgeColScale       = "edge-features-col-scale"
	arrayLabels             = "labels"
	arrayNodeTimes          = "node-times"
	arrayEdgeTimes          = "edge-times"
	arrayTrain              = "train"
	arrayValid              = "valid"
	arrayTest               = "test"
	manifestFile            = "store.json"
	manifestFormat          = "gnnactor-store"
	maxManifestBytes        = 1 << 20
	arrayFileSuffix         = ".bin"
	maxNodes          int64 = 1<<32 - 1 // ids are below it, so no id is the largest uint32
)

var arrayNames = []string{
	arrayIndptr, arrayIndices, arrayWeights,
	arrayNodeFeatures, arrayNodeRowScale, arrayNodeColScale,
	arrayEdgeFeatures, arrayEdgeRowScale, arrayEdgeColScale,
	arrayLabels, arrayTrain, arrayValid, arrayTest,
	arrayNodeTimes, arrayEdgeTimes,
}

// manifest is the content of store.json. The file is exactly the encoding of
// this struct, so any changed byte is found when the store is opened.
type manifest struct {
	Format     string          `json:"format"`
	Version    int             `json:"version"` // the newest that an array file may have
	Name       string          `json:"name"`
	NumNodes   int64           `json:"num_nodes"`
	NumEdges   int64           `json:"num_edges"`
	NumClasses int64           `json:"num_classes"`
	Arrays     []manifestArray `json:"arrays"`
	// Partitions have an array each, listed after the data's own.
	Partitions []manifestPartition `json:"partitions,omitempty"`
	// SplitLabels is the SHA-256 of the labels with those outside of the
	// splits masked; see Dataset.ContentHash.
	SplitLabels string `json:"split_labels_sha256,omitempty"`
	Fingerprint string `json:"fingerprint"`
	Checksum    string `json:"manifest_sha256"` // of this document with an empty checksum
}

type manifestArray struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Rows   int64  `json:"rows"`
	Cols   int64  `json:"cols"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func (m *manifest) array(name string) *manifestArray {
	for i := range m.Arrays {
		if m.Arrays[i].Name == name {
			return &m.Arrays[i]
		}
	}
	return nil
}

// fingerprint hashes the arrays' types, shapes and checksums, which is to say
// the content, and nothing of how or when it was written.
func (m *manifest) fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "gnnactor dataset 1\nclasses %d\n", m.NumClasses)
	for _, name := range arrayNames {
		a := m.array(name)
		if a == nil || a.Rows == 0 && (name == arrayTrain || name == arrayValid || name == arrayTest) {
			continue // an empty split is the same as none
		}
		sum := a.SHA256
		if name == arrayLabels && m.SplitLabels != "" {
			sum = m.SplitLabels
		}
		fmt.Fprintf(h, "%s %s %d %d %s\n", a.Name, a.Type, a.Rows, a.Cols, sum)
	}
	return hex.EncodeToString(h.Sum(nil))
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
	if version.Version < 1 || version.Version > storeVersion {
		return nil, fmt.Errorf("version %d, but this program reads versions 1 to %d", version.Version, storeVersion)
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
	if isPartitionArray(name) {
		return true // check looks for the partition that it belongs to
	}
	for _, n := range arrayNames {
		if n == name {
			return true
		}
	}
	return false
}
