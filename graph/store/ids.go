package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// IDs says what a file of node ids by itself holds, beside no other array.
type IDs struct {
	Count  int64  `json:"count"`
	SHA256 string `json:"sha256"`
}

// WriteIDs writes ids to a file, whole or not at all.
func WriteIDs(path string, ids []uint32) (IDs, error) {
	b := arrays.Bytes(ids)
	sum := sha256.Sum256(b)
	err := atomicfile.Write(path, 0o644, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
	return IDs{int64(len(ids)), hex.EncodeToString(sum[:])}, dataerr.Writing(path, err)
}

// ReadIDs reads what WriteIDs wrote.
func ReadIDs(path string, is IDs) ([]uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	if st.Size()%4 != 0 || st.Size()/4 != is.Count {
		return nil, dataerr.Bad("%s has %d bytes, which are not %d ids", path, st.Size(), is.Count)
	}
	ids := make([]uint32, is.Count)
	b := arrays.Bytes(ids)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != is.SHA256 {
		return nil, dataerr.Bad("%s: damaged: its SHA-256 does not match", path)
	}
	return ids, nil
}
