package importer

import (
	"bytes"
	"io"
	"strconv"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// Times are whole numbers in any unit, kept as int64.

// writeNodeTimes writes the nodes' times, if there are any.
func (im *importer) writeNodeTimes() error {
	if im.nodeTimes == nil {
		return nil
	}
	if int64(len(im.nodeTimes)) != im.nodes {
		return dataerr.Bad("%d times for %d nodes; give one each", len(im.nodeTimes), im.nodes)
	}
	return im.w.Put(arrays.NodeTimes, graph.Int64, 1, arrays.Bytes(im.nodeTimes))
}

// startEdgeTimes opens the scratch file of the edges' times.
func (im *importer) startEdgeTimes() error {
	t, err := im.w.ScratchArray(arrays.EdgeTimes, graph.Int64, 1)
	if err != nil {
		return err
	}
	im.edgeTimes = t
	return nil
}

// eachTimeNPY calls put with the values of a file of one dimension, in pieces.
func (im *importer) eachTimeNPY(path string, start func(n int64) error, put func(part []int64) error) error {
	a, err := im.openNPY(path)
	if err != nil {
		return err
	}
	defer a.close()
	if len(a.shape) == 2 && a.shape[1] == 1 {
		a.shape = a.shape[:1]
	}
	if len(a.shape) != 1 {
		return dataerr.Bad("%s: %s; want times, in one dimension", path, &a.npyHeader)
	}
	n := a.shape[0]
	if err := start(n); err != nil {
		return err
	}
	r := a.values(0, n)
	buf := make([]int64, npyBlock)
	for at := int64(0); at < n; at += npyBlock {
		part := buf[:min(n-at, npyBlock)]
		if err := r.ints(part); err != nil {
			return err
		}
		if err := put(part); err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) nodeTimesNPY(path string) error {
	return im.eachTimeNPY(path, func(n int64) error {
		im.nodeTimes = make([]int64, 0, n)
		return im.setNodes(n, path)
	}, func(part []int64) error {
		im.nodeTimes = append(im.nodeTimes, part...)
		return nil
	})
}

func (im *importer) edgeTimesNPY(path string) error {
	if im.edgeTimes != nil {
		return dataerr.Bad("%s: the edges have times already; take one of them away", path)
	}
	return im.eachTimeNPY(path, func(n int64) error {
		if n != im.edges.count {
			return dataerr.Bad("%s has %d rows, but there are %d edges; give one row per edge", path, n, im.edges.count)
		}
		return im.startEdgeTimes()
	}, func(part []int64) error {
		_, err := im.edgeTimes.Write(arrays.Bytes(part))
		return err
	})
}

// nodeTimesText reads one line per node.
func (im *importer) nodeTimesText(path string) error {
	t, err := im.openText(path)
	if err != nil {
		return err
	}
	defer t.close()
	im.nodeTimes = []int64{}
	for {
		line, err := t.next()
		if err == io.EOF {
			return im.setNodes(int64(len(im.nodeTimes)), path)
		}
		if err != nil {
			return err
		}
		when, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
		if err != nil {
			return t.errorf("%q is not a time; want a whole number", clip(line))
		}
		if im.nodeTimes = append(im.nodeTimes, when); int64(len(im.nodeTimes)) > graph.MaxNodes {
			return t.errorf("more times than the %d nodes that ids can name", graph.MaxNodes)
		}
	}
}
