package importer

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// npzFile is an open archive of NumPy arrays (.npz).
type npzFile struct {
	path    string
	members map[string]*zip.File // by name, without .npy
}

const (
	maxMembers = 4096
	maxNPZText = 256 // bytes of an array of text
)

// decodeNPZ lists the arrays of the archive of size bytes in r; path is what
// errors call it.
func decodeNPZ(r io.ReaderAt, size int64, path string) (*npzFile, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, npzError(path, err)
	}
	if len(z.File) > maxMembers {
		return nil, dataerr.Bad("%s: %d arrays; at most %d are read", path, len(z.File), maxMembers)
	}
	a := &npzFile{path: path, members: map[string]*zip.File{}}
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok {
			continue
		}
		if a.members[name] != nil {
			return nil, dataerr.Bad("%s: the array %q is there twice; save it again", path, clip(name))
		}
		if local, err := localName(r, f); err != nil {
			return nil, npzError(path, err)
		} else if local != f.Name {
			return nil, npzError(path, fmt.Errorf("the array %q is called %q where it begins", clip(f.Name), clip(local)))
		}
		a.members[name] = f
	}
	return a, nil
}

// localName returns the name in the header before a member's data: it is in the
// archive's directory, too, and no checksum covers either.
func localName(r io.ReaderAt, f *zip.File) (string, error) {
	const fixed, signature = 30, "PK\x03\x04"
	data, err := f.DataOffset()
	if err != nil {
		return "", err
	}
	b := make([]byte, min(data, fixed+1<<12)) // names and further fields are short
	if _, err := r.ReadAt(b, data-int64(len(b))); err != nil {
		return "", err
	}
	for at := len(b) - fixed; at >= 0; at-- {
		h := b[at:]
		name, extra := int(binary.LittleEndian.Uint16(h[26:])), int(binary.LittleEndian.Uint16(h[28:]))
		if string(h[:4]) == signature && fixed+name+extra == len(h) {
			return string(h[fixed : fixed+name]), nil
		}
	}
	return "", fmt.Errorf("the array %q has no header", clip(f.Name))
}

// npzError tells an archive that cannot be read from a damaged one.
func npzError(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("graph: %w", err)
	}
	return dataerr.Bad("%s: %w; the archive is truncated or damaged, fetch it again", path, err)
}

// name is what errors call an array.
func (a *npzFile) name(member string) string { return a.path + ":" + member }

// first returns the first of the names that the archive has an array of, or "".
func (a *npzFile) first(names ...string) string {
	for _, n := range names {
		if a.members[n] != nil {
			return n
		}
	}
	return ""
}

// header reads an array's header, and checks that the archive says the same
// about its size.
func (a *npzFile) header(member string) (h npyHeader, err error) {
	f := a.members[member]
	r, err := f.Open()
	if err != nil {
		return h, npzError(a.name(member), err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxNPYHeader+12))
	if err != nil {
		return h, npzError(a.name(member), err)
	}
	if h, err = decodeNPYHeader(b); err != nil {
		return h, dataerr.Bad("%s: %w", a.name(member), err)
	}
	if got, want := f.UncompressedSize64, h.offset+h.count()*int64(h.size); got != uint64(want) {
		return h, dataerr.Bad("%s: it has %d bytes, but %s needs %d; the archive is damaged, fetch it again", a.name(member), got, &h, want)
	}
	return h, nil
}

// copyTo unpacks an array, at most as much as the archive says it has; zip
// checks its sum.
func (a *npzFile) copyTo(w io.Writer, member string) error {
	f := a.members[member]
	r, err := f.Open()
	if err != nil {
		return npzError(a.name(member), err)
	}
	defer r.Close()
	in := &npzReader{r: io.LimitReader(r, int64(f.UncompressedSize64)+1), at: a.name(member)}
	_, err = io.Copy(w, in)
	return err
}

// npzReader tells errors of reading from those of writing.
type npzReader struct {
	r  io.Reader
	at string
}

func (r *npzReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF {
		err = npzError(r.at, err)
	}
	return n, err
}

// text reads an array of one string, of bytes or of characters.
func (a *npzFile) text(member string) (string, error) {
	r, err := a.members[member].Open()
	if err != nil {
		return "", npzError(a.name(member), err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxNPYHeader+12))
	if err != nil {
		return "", npzError(a.name(member), err)
	}
	start := 10
	if len(b) > 10 && b[6] > 1 {
		start = 12
	}
	if len(b) < start || string(b[:6]) != "\x93NUMPY" {
		return "", dataerr.Bad("%s: this is not a NumPy array", a.name(member))
	}
	n := int(binary.LittleEndian.Uint16(b[8:])) // longer ones have more than one string
	if value := b[min(start+n, len(b)):]; len(value) <= maxNPZText {
		return strings.ReplaceAll(string(value), "\x00", ""), nil
	}
	return "", dataerr.Bad("%s: more than %d bytes; a short text is needed", a.name(member), maxNPZText)
}
