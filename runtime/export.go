package runtime

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// Export writes the parameters of m to a safetensors file for another program, under the names of style, one of
// compute.NameStyles, or, if names is not nil, under those. OpenModel reads the former again. It writes atomically.
func (m *Model) Export(path, style string, names compute.NameMap) error {
	d, err := m.described()
	if err != nil {
		return err
	}
	tensors, err := compute.WriteNames(style, d.Model, m.tensors)
	if err == nil && names != nil {
		tensors, err = names.Write(m.tensors)
	}
	if err != nil {
		return fmt.Errorf("runtime: export: %w", err)
	}
	meta := map[string]string{}
	if m.guess == nil || m.supposed { // else nobody has said what the tensors do not
		about, err := json.Marshal(d)
		if err != nil {
			return fmt.Errorf("runtime: export: %w", err)
		}
		meta[DescriptionKey] = string(about)
	}
	if m.recipe != "" {
		meta[RecipeKey] = m.recipe
	}
	if style != "pyg" {
		meta[namesKey] = style
	}
	err = atomicfile.Write(path, 0o644, func(w io.Writer) error { return compute.WriteSafetensors(w, tensors, meta) })
	if err != nil {
		return fmt.Errorf("runtime: export: %w", err)
	}
	return nil
}

// described returns Description, or what the tensors say.
func (m *Model) described() (Description, error) {
	if d, ok := m.Guess(); ok {
		return d, nil
	}
	return m.Description()
}

// ExportONNX writes m as an ONNX graph, whose inputs compute.Model.ONNX describes. It writes atomically.
func (m *Model) ExportONNX(path string) error {
	d, err := m.described()
	if err != nil {
		return err
	}
	model, err := compute.NewModel(d.Model, graph.Elsewhere(0, 0))
	if err != nil {
		return fmt.Errorf("runtime: export: %w", err)
	}
	params, err := model.Parameters(m.tensors)
	if err != nil {
		return fmt.Errorf("runtime: export: %s: %w", m.path, err)
	}
	b, err := model.ONNX(params)
	if err != nil {
		return fmt.Errorf("runtime: export: %w", err)
	}
	err = atomicfile.Write(path, 0o644, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
	if err != nil {
		return fmt.Errorf("runtime: export: %w", err)
	}
	return nil
}
