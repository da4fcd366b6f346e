package importer

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// nodeColumns says where what is known of nodes is; -1: nowhere.
type nodeColumns struct {
	id, label, split, time int
	number                 bool // labels are numbers to predict
	masks                  [3]int
	features               []*fit
	at                     []int // of the features
}

// nodeColumns finds out what the columns of a table of nodes are.
func (t *table) nodeColumns() (c nodeColumns, err error) {
	o := &t.im.o
	first := func(flag, given string, list []string) (int, error) {
		if given == none {
			return -1, nil
		} else if given != "" {
			return t.column(flag, given)
		} else if found := t.named(list); len(found) > 0 {
			return found[0], nil
		}
		return -1, nil
	}
	c.id = -1
	if o.ID != rowID {
		if c.id, err = first("--id", o.ID, idNames); err != nil {
			return c, err
		}
		if c.id < 0 {
			return c, dataerr.Bad("%s: which of its columns is the node's id? It has %s; say it (--id COL), or that the rows are nodes 0, 1, … (--id row)", t.path, t.columns())
		}
	}
	label, kind := cutKind(o.Label)
	if kind != "" && kind != kindNumber {
		return c, fmt.Errorf("graph: --label %s: labels are classes, or numbers to predict (%s:%s)", clip(o.Label), clip(label), kindNumber)
	}
	if c.label, err = first("--label", label, labelNames); err != nil {
		return c, err
	}
	c.number = kind == kindNumber
	if r := o.Recipe; r != nil && r.Label != nil && o.Label == "" { // other data may have no labels
		if i, err := t.column("the recipe", r.Label.Column); err == nil {
			c.label = i
		}
	}
	if r := o.Recipe; r != nil && r.Label != nil && o.Label == "" {
		c.number = r.Label.Number
	}
	if c.time, err = first("--time", "", timeNames); err != nil {
		return c, err
	}
	c.split = -1
	c.masks = [3]int{-1, -1, -1}
	switch kind := t.im.splitKind(); {
	case kind == "time":
		name, _, _ := strings.Cut(strings.TrimPrefix(o.Split, "time:"), ":")
		if c.time, err = t.column("--split time:COL", name); err != nil {
			return c, err
		}
	case kind == "":
		if c.split, err = first("--split", o.Split, splitColumn); err != nil {
			return c, err
		}
		for k, list := range maskNames {
			if found := t.named(list); len(found) > 0 && c.split < 0 {
				c.masks[k] = found[0]
			}
		}
	}
	taken := append([]int{c.id, c.label, c.split, c.time}, c.masks[:]...)
	add := func(i int, kind string, asked bool) {
		c.features, c.at = append(c.features, newFit(t.name(i), kind, asked)), append(c.at, i)
	}
	switch {
	case o.Recipe != nil:
		for _, f := range o.Recipe.Nodes {
			i, err := t.column("the recipe", f.Column)
			if err != nil {
				return c, err
			}
			add(i, f.Kind, true)
		}
	case len(o.Features) == 0 || len(o.Features) == 1 && o.Features[0] == "all":
		for i := range t.cols {
			if !slices.Contains(taken, i) && (t.names == nil || !isIndex(i, t.names[i])) {
				add(i, "", len(o.Features) == 1)
			}
		}
	case len(o.Features) == 1 && o.Features[0] == none:
	default:
		for _, name := range o.Features {
			name, kind := cutKind(name)
			i, err := t.column("--feature", name)
			if err != nil {
				return c, err
			}
			add(i, kind, true)
		}
	}
	return c, nil
}

// isIndex tells whether a column is what pandas adds, the numbers of rows.
func isIndex(i int, name string) bool { return i == 0 && name == "" || name == "__index_level_0__" }

// rowID says that a node's id is the number of its row.
const rowID = "row"

// readNodes reads a table of nodes: first who they are, then their features.
func (im *importer) readNodes(path string) error {
	t, err := im.openTable(path, knownNodeColumn)
	if err != nil {
		return err
	}
	c, err := t.nodeColumns()
	if err != nil {
		return err
	}
	place, err := im.nodeRows(t, &c)
	if err != nil {
		return err
	}
	fits, at := c.features, c.at
	if err := im.fitNumbers(t, &c, place); err != nil {
		return err
	}
	use := map[int]string{}
	for k, f := range fits {
		use[at[k]] = f.unused()
	}
	maps.Copy(use, map[int]string{c.id: "id", c.label: "label", c.split: "split", c.time: "time"})
	if im.made.Label != nil && im.made.Label.Classes != nil {
		use[c.label] = "label: " + listed(im.made.Label.Classes)
	} else if c.number {
		use[c.label] = "label: number"
	}
	for k, m := range c.masks {
		use[m] = []string{"train", "valid", "test"}[k]
	}
	for i, f := range im.made.Nodes {
		use[c.at[i]] = f.describe()
	}
	t.understood("nodes", use)
	if im.o.dryRun || len(im.made.Nodes) == 0 {
		return nil
	}
	return im.encodeNodes(t, &c, place)
}

// nodeRows reads ids, labels, splits and times, and finds out what the columns of features are. It
// returns the node of every row.
func (im *importer) nodeRows(t *table, c *nodeColumns) (place []uint32, err error) {
	var wanted []int
	at := func(column int) int {
		if column < 0 {
			return -1
		}
		wanted = append(wanted, column)
		return len(wanted) - 1
	}
	id, label, split, when := at(c.id), at(c.label), at(c.split), at(c.time)
	masks := [3]int{at(c.masks[0]), at(c.masks[1]), at(c.masks[2])}
	features := len(wanted)
	wanted = append(wanted, c.at...)
	labels := &classes{values: map[string]int32{}, whole: true}
	if label >= 0 {
		labels.column = t.name(c.label)
		if r := im.o.Recipe; r != nil && r.Label != nil && r.Label.Classes != nil {
			labels.known = r.Label.Classes
			for i, name := range labels.known {
				labels.values[name] = int32(i)
			}
		}
	}
	im.ids = newIDMap()
	rows, begun := 0, 0 // of all, and those before the map's
	var sets []uint8
	var times []int64
	var values []float32
	err = eachBatch(t, wanted, func(r *records, b *edgeBatch) error { // ids[i] of row i
		b.ids, b.numbers = b.ids[:0], true
		for i := range r.rows {
			if id < 0 {
				break
			}
			x, ok := parseNumber(r.field(i, id))
			if !ok {
				b.numbers = false
				break
			}
			b.ids = append(b.ids, x)
		}
		if !b.numbers {
			b.texts.take(r, id)
		}
		return nil
	}, func(r *records, b *edgeBatch) error {
		if id < 0 {
			for i := range r.rows {
				b.ids = append(b.ids, int64(rows+i))
			}
		}
		b.out = resized(b.out, r.rows)
		bad, err := 0, error(nil)
		if b.numbers && !im.ids.texts {
			bad, err = im.ids.addNumbers(b.ids, b.out)
		} else {
			if b.numbers {
				b.texts.take(r, id)
			}
			bad, err = im.ids.addTexts(r, &b.texts, []int{id}, b.out)
		}
		if err != nil {
			return r.errorf(bad, "%w", err)
		}
		for i, v := range b.out[:r.rows] {
			if int(v) != rows-begun {
				return errRowTwice(r, i, id)
			}
			rows++
			if b := r.field(i, max(label, 0)); label >= 0 && c.number {
				x := float32(math.NaN())
				if !missingValue(b) {
					if x, err = im.o.parseValue(b); err != nil {
						return r.errorf(i, "a label: %w; leave :number off --label if labels are classes", err)
					}
				}
				values = append(values, x)
			} else if label >= 0 {
				if err := labels.add(r.field(i, label)); err != nil {
					return r.errorf(i, "%w", err)
				}
			}
			if when >= 0 {
				x, err := parseTime(r.field(i, when))
				if err != nil {
					return r.errorf(i, "%w", err)
				}
				times = append(times, x)
			}
			set, err := splitOf(r, i, split, masks)
			if err != nil {
				return r.errorf(i, "%w", err)
			}
			sets = append(sets, set)
			for k, f := range c.features {
				f.add(&im.o, r.field(i, features+k))
			}
		}
		if im.o.dryRun || !im.full() {
			return nil
		}
		begun = rows
		return im.endRun(int64(rows))
	})
	if err != nil {
		return nil, err
	}
	if !im.o.dryRun && im.merges() {
		place, err = im.nameRows(t, c.id, int64(rows))
	} else if place, err = im.takeNames(t.path); err == nil { // the map numbered rows
		im.ids.frozen = true
		if im.names == nil {
			im.ids = nil
		}
	}
	if err != nil {
		return nil, err
	}
	if label >= 0 && c.number {
		if im.o.Recipe == nil {
			im.made.Label = &LabelColumn{Column: labels.column, Number: true}
		}
		im.labels.NumClasses, im.labels.Values = 1, make([]float32, len(place))
		for i, x := range values {
			im.labels.Values[place[i]] = x
		}
	} else if label >= 0 {
		if im.o.Label == "" && labels.known == nil && labels.fractions(im.o.parseValue) {
			return nil, dataerr.Bad("%s: the column %q, by its name the label, has numbers with fractions; say what they are: numbers to predict (--label %s:number), classes (--label %[3]s), or no labels (--label none)", t.path, clip(labels.column), labels.column)
		}
		names, err := labels.settle(t.path)
		if err != nil {
			return nil, err
		}
		if im.o.Recipe == nil {
			im.made.Label = &LabelColumn{Column: labels.column, Classes: names}
		}
		im.labels.Class = make([]int32, len(place))
		im.labels.NumClasses = len(names)
		for i, class := range labels.rows {
			im.labels.Class[place[i]] = class
			im.labels.NumClasses = max(im.labels.NumClasses, int(class)+1)
		}
	}
	if when >= 0 {
		im.nodeTimes = make([]int64, len(place))
		for i, x := range times {
			im.nodeTimes[place[i]] = x
		}
	}
	for i, set := range sets {
		if set > 0 && im.labels.Known(place[i]) {
			im.splits[set-1] = append(im.splits[set-1], place[i])
		}
	}
	return place, nil
}

func errRowTwice(r *records, i, id int) error {
	return r.errorf(i, "the node %q is there twice; each has one row (what its id is: --id COL)", clip(r.field(i, id)))
}

// fitNumbers decides what the columns of features become: the means of numbers that are missing and
// the scale are those of the training nodes, where there are any.
func (im *importer) fitNumbers(t *table, c *nodeColumns, place []uint32) error {
	var used []*fit
	var at []int
	for k, f := range c.features {
		if im.o.Recipe != nil {
			continue
		}
		use, err := f.settle(t.path)
		if err != nil {
			return err
		}
		if use {
			used, at = append(used, f), append(at, c.at[k])
		}
	}
	if im.o.Recipe != nil {
		return nil
	}
	c.features, c.at = used, at
	if k := im.splitKind(); k != "" {
		if err := im.drawSplit(); err != nil {
			return err
		}
	}
	var numbers []*fit
	var columns []int
	for k, f := range used {
		if f.Kind == kindNumber && (f.Missing || im.o.Scale != "") {
			numbers, columns = append(numbers, f), append(columns, at[k])
		}
	}
	if len(numbers) > 0 {
		if err := im.sumNumbers(t, numbers, columns, place); err != nil {
			return err
		}
	}
	for _, f := range used {
		im.made.Nodes = append(im.made.Nodes, f.FeatureColumn)
	}
	return nil
}

func (im *importer) sumNumbers(t *table, numbers []*fit, columns []int, place []uint32) error {
	training := make([]bool, len(place))
	for _, v := range im.splits[0] {
		training[v] = true
	}
	row := 0
	err := eachBatch(t, columns, func(*records, *struct{}) error { return nil }, func(r *records, _ *struct{}) error {
		for i := range r.rows {
			in := len(im.splits[0]) == 0 || training[place[row]]
			row++
			for k, f := range numbers {
				if b := r.field(i, k); in && !missingValue(b) {
					x, err := im.o.parseValue(b)
					if err != nil {
						return r.errorf(i, "column %q: %w", clip(f.Column), err)
					}
					f.sum, f.sumSq, f.count = f.sum+float64(x), f.sumSq+float64(x)*float64(x), f.count+1
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range numbers {
		if f.count == 0 {
			continue
		}
		mean := f.sum / float64(f.count)
		if f.Missing {
			f.Fill = mean
		}
		if im.o.Scale == scaleStandard {
			f.Center = mean
			if sd := math.Sqrt(max(0, f.sumSq/float64(f.count)-mean*mean)); sd > 1e-9*math.Abs(mean) {
				f.Factor = 1 / sd
			} else {
				f.Factor = 1
			}
		}
	}
	return nil
}

// scaleStandard is the Scale by which a number has mean 0 and standard deviation 1.
const scaleStandard = "standard"

// encodeNodes writes the features, those of node v in row v.
func (im *importer) encodeNodes(t *table, c *nodeColumns, place []uint32) error {
	enc := newEncoder(&im.o, im.made.Nodes)
	row := make([]uint32, len(place)) // of each node
	ordered := true
	for i, v := range place {
		row[v] = uint32(i)
		ordered = ordered && int(v) == i
	}
	if err := im.claim(int64(len(enc.x))*4*im.nodes/256, t.path, fmt.Sprintf("features of %d columns for %d nodes", len(enc.x), im.nodes)); err != nil {
		return err
	}
	out, err := im.startNodeFeatures(len(enc.x), graph.Float32, !ordered)
	if err != nil {
		return err
	}
	defer func() { out.Close() }()
	err = eachBatch(t, c.at, func(*records, *struct{}) error { return nil }, func(r *records, _ *struct{}) error {
		for i := range r.rows {
			x, err := enc.row(func(k int) []byte { return r.field(i, k) })
			if err != nil {
				return r.errorf(i, "%w", err)
			}
			if err := out.Row(x); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if out.Bytes() != int64(len(place))*out.RowBytes() {
		return dataerr.Bad("%s: it changed while it was read", t.path)
	}
	if ordered {
		return out.Finish()
	}
	origin, err := im.w.ScratchArray("node-rows", graph.Uint32, 1)
	if err != nil {
		return err
	}
	defer origin.Close()
	if _, err := origin.Write(arrays.Bytes(row)); err != nil {
		return err
	}
	return out.Map(func(rows []byte) error { return im.placeRows(arrays.NodeFeatures, out.ArrayWriter, origin, rows, nil) })
}
