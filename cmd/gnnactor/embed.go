package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/runtime"
)

func newEmbed(a *app) *cobra.Command {
	var (
		config       *configFlags
		c            clusterFlags
		nodes        *nodeFlags
		out, scratch string
	)
	cmd := &cobra.Command{
		Use:   "embed --params FILE",
		Short: "Compute the model's output for nodes",
		Long: `Compute the model's output for nodes, by exact inference over their whole
neighbourhood. With --out the rows go to a file, in the order of the store's nodes, which is that
of their ids: of numbers, or of the bytes of texts. It is a NumPy array without ids
(.npy), CSV (.csv), lines of JSON (.jsonl) or Parquet (.parquet), as its name ends;
otherwise each is printed as a line: the id, then its values, tabs between.

` + overPieces + `
Rows of all nodes (--out FILE.npy alone) are written piece by piece.`,
		Example: `  gnnactor embed --data DIR --params model.safetensors --out embeddings.npy
  gnnactor embed --data DIR --params model.safetensors --ids 0,5,10-19`,
		Args: a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkRowsFile(out, rowsEndings); err != nil {
				return err
			}
			cfg, err := savedConfig(cmd, a, config)
			if err != nil {
				return err
			}
			if pieces.IsSet(cfg.Data.Path) {
				if nodes.sampled != nil {
					return usagef("--sampled: partition sets are computed exactly; leave it out, or name the store")
				}
				return c.overPieces(cmd, a, cfg, config, scratch, nil, func(d *runtime.Divided, o *runtime.Outputs) error {
					return a.embedDivided(cmd.Context(), d, o, nodes, out)
				})
			}
			if len(c.store) > 0 {
				return usagef("--cluster: nodes infer together over a partition set ('gnnactor partition --out DIR' makes one)")
			}
			rt, err := startSaved(cmd, cfg, scratch)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, rt.Stop()) }()
			ids, err := nodes.nodes(rt.Dataset())
			if err != nil {
				return err
			}
			began := time.Now()
			e, err := nodes.embed(cmd.Context(), rt, ids)
			if err == nil {
				err = rt.Verified(cmd.Context())
			}
			if err != nil {
				return err
			}
			took := time.Since(began)
			if out == "" {
				return a.printRows(ids, e, calledIn(rt.Dataset()))
			}
			if err := writeRows(out, ids, e, valueColumn, "embedding", calledIn(rt.Dataset())); err != nil {
				return err
			}
			if a.output == outputJSON {
				return a.printJSON(map[string]any{"file": out, "rows": e.Rows, "cols": e.Cols, "seconds": took.Seconds()})
			}
			_, err = fmt.Fprintf(a.stdout, "%s: %s × %s float32, computed in %s\n", out, formatCount(e.Rows), formatCount(e.Cols), formatDuration(took))
			return err
		},
	}
	config = addInferenceFlags(cmd)
	nodes = addNodeFlags(cmd)
	cmd.Flags().StringVar(&out, "out", "", "`FILE`.npy to write the rows to, or .csv, .jsonl or .parquet, with the nodes' ids")
	addScratchFlag(cmd, &scratch)
	c.addInferFlags(cmd)
	a.addOutputFlag(cmd)
	return cmd
}

// valueColumn is what CSV calls value j of a node.
func valueColumn(j int) string { return "x" + strconv.Itoa(j) }

// printRows prints the values of nodes under their names.
func (a *app) printRows(ids []uint32, e *runtime.Embedding, c called) error {
	return graph.Guard(func() error {
		if a.output == outputJSON {
			rows, names := make([][]float32, e.Rows), make([]any, e.Rows)
			for i := range rows {
				rows[i], names[i] = e.Data[i*e.Cols:(i+1)*e.Cols], c.id(ids[i])
			}
			return a.printJSON(map[string]any{"ids": names, "embeddings": rows})
		}
		w := bufio.NewWriter(a.stdout)
		var line []byte
		for i, id := range ids {
			line = c.text(line[:0], id)
			for _, x := range e.Data[i*e.Cols : (i+1)*e.Cols] {
				line = append(line, '\t')
				line = strconv.AppendFloat(line, float64(x), 'g', -1, 32)
			}
			w.Write(append(line, '\n')) // the error stays until Flush
		}
		return w.Flush()
	})
}

// writeNPY writes e as a NumPy array of format version 1.0: float32,
// little-endian, row-major.
func writeNPY(w io.Writer, e *runtime.Embedding) error {
	out := bufio.NewWriterSize(w, 1<<20)
	out.Write(headerNPY("<f4", e.Rows, e.Cols))
	if err := binary.Write(out, binary.LittleEndian, e.Data); err != nil {
		return err
	}
	return out.Flush()
}

// headerNPY is what a NumPy file begins with, of format version 1.0.
func headerNPY(values string, shape ...int) []byte {
	sizes := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(shape)), ", "), "[]")
	if len(shape) == 1 {
		sizes += ","
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", values, sizes)
	const before = 10 // magic, version, header length
	header += strings.Repeat(" ", 63-(before+len(header))%64) + "\n"
	b := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	return append(b, header...)
}
