package importer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/rng"
)

// splitOf returns the split that a row is in, from 1; 0: none.
func splitOf(r *records, i, split int, masks [3]int) (uint8, error) {
	if split >= 0 {
		switch b := r.field(i, split); strings.ToLower(string(b)) {
		case "train", "training":
			return 1, nil
		case "valid", "val", "validation", "dev":
			return 2, nil
		case "test", "testing":
			return 3, nil
		default:
			if missingValue(b) || strings.EqualFold(string(b), "unlabeled") {
				return 0, nil
			}
			return 0, fmt.Errorf("the split %q is none of train, valid and test; say which column it is (--split COL), or draw one (--split random:60/20/20)", clip(b))
		}
	}
	set := uint8(0)
	for k, m := range masks {
		if m < 0 {
			continue
		}
		switch b := r.field(i, m); strings.ToLower(string(b)) {
		case "true", "1", "1.0":
			if set > 0 {
				return 0, fmt.Errorf("the node is in two splits; a node may be in one only")
			}
			set = uint8(k + 1)
		case "false", "0", "0.0", "":
		default:
			return 0, fmt.Errorf("%q says neither true nor false of a split", clip(b))
		}
	}
	return set, nil
}

// splitKind is "random" or "time" where the option Split asks for one to be drawn.
func (im *importer) splitKind() string {
	for _, kind := range []string{"random", "time"} {
		if strings.HasPrefix(im.o.Split, kind+":") {
			return kind
		}
	}
	return ""
}

// splitShares reads 60/20/20.
func splitShares(s string) (shares [3]float64, err error) {
	parts := strings.Split(s, "/")
	sum := 0.0
	for i := range shares {
		if i < len(parts) {
			shares[i], err = strconv.ParseFloat(parts[i], 64)
			if !(shares[i] >= 0) || shares[i] > 1e9 {
				err = errors.New("out of range")
			}
			sum += shares[i]
		}
		if err != nil {
			break
		}
	}
	if err != nil || len(parts) != 3 {
		return shares, fmt.Errorf("graph: --split: %q is not three shares like 60/20/20", clip(s))
	}
	if !slices.ContainsFunc([]float64{1, 10, 100}, func(all float64) bool { return math.Abs(sum-all) <= 1e-3*all }) {
		return shares, fmt.Errorf("graph: --split: the shares %s are %g in all, and have to be 100 (60/20/20), 10 (8/1/1) or 1 (0.6/0.2/0.2)", clip(s), sum)
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares, nil
}

// drawSplit divides the nodes that have labels, or where there are none all nodes, into
// training, validation and test: drawn by the seed, stratified so within each class, or by time, the
// oldest first.
func (im *importer) drawSplit() error {
	kind := im.splitKind()
	if kind == "" || im.drawn {
		return nil
	}
	im.drawn = true
	rest := strings.TrimPrefix(im.o.Split, kind+":")
	text, more, _ := strings.Cut(rest, ":")
	if kind == "time" {
		text, more = more, ""
		if text == "" {
			text = "60/20/20"
		}
	}
	shares, err := splitShares(text)
	if err != nil {
		return err
	}
	if more != "" && more != "stratified" {
		return fmt.Errorf("graph: --split: %q is not stratified", clip(more))
	}
	var groups [][]uint32
	if more == "stratified" {
		if im.labels.Class == nil {
			return fmt.Errorf("graph: --split: stratified is by class, and there are no labels that are classes (--label COL)")
		}
		groups = make([][]uint32, im.labels.NumClasses)
	} else {
		groups = make([][]uint32, 1)
	}
	for v := range uint32(im.nodes) {
		class := 0
		if !im.labels.Known(v) {
			continue
		}
		if len(groups) > 1 {
			class = int(im.labels.Class[v])
		}
		groups[class] = append(groups[class], v)
	}
	if kind == "time" && im.nodeTimes == nil {
		return fmt.Errorf("graph: --split %s: the nodes have no times", clip(im.o.Split))
	}
	for k, group := range groups {
		if kind == "time" {
			slices.SortStableFunc(group, func(a, b uint32) int { return cmp.Compare(im.nodeTimes[a], im.nodeTimes[b]) })
		} else {
			rng.New(im.o.Seed, uint64(k)).Shuffle(group)
		}
		n := float64(len(group))
		first := int(math.Round(shares[0] * n))
		second := max(first, int(math.Round((shares[0]+shares[1])*n)))
		im.splits[0] = append(im.splits[0], group[:first]...)
		im.splits[1] = append(im.splits[1], group[first:second]...)
		im.splits[2] = append(im.splits[2], group[second:]...)
	}
	return nil
}
