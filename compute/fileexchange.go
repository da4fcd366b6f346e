package compute

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// FileExchange is an Exchange between pieces of one process that are computed one after the other, from which nodes may receive at the same time, and
// Activations, in files of a directory that belongs to it: what is put there outlives the process.
// Damage to files that are complete is not found.
type FileExchange struct{ dir string }

// OpenFileExchange makes dir a FileExchange for what about says; if it is one for something else, or something else altogether,
// that is an error.
func OpenFileExchange(dir, about string) (*FileExchange, error) {
	name := filepath.Join(dir, "about")
	was, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := MakeScratch(dir); err != nil {
			return nil, err
		}
		if err := atomicfile.Write(name, 0o644, func(w io.Writer) error {
			_, err := io.WriteString(w, about)
			return err
		}); err != nil {
			return nil, fmt.Errorf("compute: %w", err)
		}
	case err != nil:
		return nil, fmt.Errorf("compute: %w", err)
	case string(was) != about:
		return nil, fmt.Errorf("compute: what is in %s was computed from other data, parameters or settings; name another directory, or remove it", dir)
	}
	return &FileExchange{dir}, nil
}

// MakeScratch makes the directory dir, unless it is there, and reports if a FileExchange cannot be there: it is one's already, whatever for, or empty.
func MakeScratch(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "about"))
	}
	if errors.Is(err, fs.ErrNotExist) {
		var list []os.DirEntry
		if list, err = os.ReadDir(dir); err == nil && len(list) > 0 {
			err = fmt.Errorf("%s is not empty, and has nothing to go on with; name a directory that is new or empty", dir)
		}
	}
	if err != nil {
		return fmt.Errorf("compute: %w", err)
	}
	return nil
}

// header is what a file begins with: rows and columns.
type header [2]int64

// write writes a matrix to w.
func write(w io.Writer, m cpu.Matrix[float32]) error {
	h := header{int64(m.Rows), int64(m.Cols)}
	if _, err := w.Write(unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))); err != nil {
		return err
	}
	if m.Stride == m.Cols {
		_, err := w.Write(asBytes(m.Data[:m.Rows*m.Cols]))
		return err
	}
	for i := range m.Rows {
		if _, err := w.Write(asBytes(m.Row(i))); err != nil {
			return err
		}
	}
	return nil
}

// read returns what a file has, in memory that makes returns for so many rows and columns.
func (f *FileExchange) read(name string, makes func(rows, cols int) (cpu.Matrix[float32], error)) (m cpu.Matrix[float32], err error) {
	file, err := os.Open(filepath.Join(f.dir, name))
	if err != nil {
		return m, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return m, err
	}
	var h header
	if _, err := io.ReadFull(file, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))); err != nil {
		return m, fmt.Errorf("%s: %w", file.Name(), err)
	}
	if values := (st.Size() - int64(unsafe.Sizeof(h))) / 4; h[0] < 0 || h[1] < 1 || h[0] > values || h[1] > values && values > 0 || h[0]*h[1] != values {
		return m, fmt.Errorf("%s: it has not %d×%d values; remove it", file.Name(), h[0], h[1])
	}
	if m, err = makes(int(h[0]), int(h[1])); err == nil {
		_, err = io.ReadFull(file, asBytes(m.Data))
	}
	return m, err
}

func asBytes(x []float32) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func (f *FileExchange) remove(name string) error {
	err := os.Remove(filepath.Join(f.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

func messageFile(round string, from, to int) string { return fmt.Sprintf("%s.%d-%d", round, from, to) }

// Send is Exchange's.
func (f *FileExchange) Send(_ context.Context, round string, from, to int, rows []float32) error {
	file, err := os.Create(filepath.Join(f.dir, messageFile(round, from, to))) // sent again by who goes on
	if err != nil {
		return err
	}
	return errors.Join(write(file, cpu.Dense(1, len(rows), rows)), file.Close())
}

// Receive is Exchange's: what was not sent yet is an error, as nobody could send it. What was received is removed.
func (f *FileExchange) Receive(_ context.Context, round string, from, to int, rows []float32) error {
	name := messageFile(round, from, to)
	_, err := f.read(name, func(_, values int) (cpu.Matrix[float32], error) {
		return cpu.Dense(1, len(rows), rows), fits(len(rows), values, message{round, from, to})
	})
	if err != nil {
		return err
	}
	return f.remove(name)
}

func activationsFile(name string, piece int) string { return fmt.Sprintf("%s.%d", name, piece) }

// Put is that of Activations.
func (f *FileExchange) Put(name string, piece int, m cpu.Matrix[float32]) error {
	return atomicfile.Write(filepath.Join(f.dir, activationsFile(name, piece)), 0o644, func(w io.Writer) error { return write(w, m) })
}

// Has is that of Activations.
func (f *FileExchange) Has(name string, piece int) bool {
	_, err := os.Stat(filepath.Join(f.dir, activationsFile(name, piece)))
	return err == nil
}

// Get is that of Activations.
func (f *FileExchange) Get(name string, piece int) (cpu.Matrix[float32], error) {
	return f.read(activationsFile(name, piece), func(rows, cols int) (cpu.Matrix[float32], error) { return cpu.NewMatrix[float32](rows, cols), nil })
}

// Drop is that of Activations.
func (f *FileExchange) Drop(name string, piece int) error {
	return f.remove(activationsFile(name, piece))
}
