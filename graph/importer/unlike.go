package importer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// mostTold is how many columns are told of.
const mostTold = 6

// Unlike says, in a few sentences, which columns of features other makes otherwise than r, those of edges included if they matter.
func (r *Recipe) Unlike(other *Recipe, edges bool) []string {
	bad := differentColumns("", r.Nodes, other.Nodes)
	if edges {
		bad = append(bad, differentColumns("edges' ", r.Edges, other.Edges)...)
	}
	if more := len(bad) - mostTold; more > 0 {
		bad = append(bad[:mostTold], fmt.Sprintf("and %d columns more", more))
	}
	return bad
}

// differentColumns says which columns were made otherwise than those that were learnt.
func differentColumns(of string, learnt, made []FeatureColumn) (bad []string) {
	names := func(columns []FeatureColumn) (all []string) {
		for _, c := range columns {
			all = append(all, c.Column)
		}
		return all
	}
	was, is := names(learnt), names(made)
	for i, name := range was {
		k := slices.Index(is, name)
		if k < 0 {
			bad = append(bad, fmt.Sprintf("there is no %scolumn %q", of, name))
			continue
		}
		x, _ := json.Marshal(learnt[i]) // plain data always encodes
		y, _ := json.Marshal(made[k])
		if string(x) != string(y) {
			bad = append(bad, fmt.Sprintf("the %scolumn %q is another %s: its values, means or scale are others", of, name, learnt[i].Kind))
		}
	}
	for _, name := range is {
		if !slices.Contains(was, name) {
			bad = append(bad, fmt.Sprintf("the model does not know the %scolumn %q", of, name))
		}
	}
	if bad == nil && !slices.Equal(was, is) {
		bad = append(bad, fmt.Sprintf("the %scolumns are in another order, %s in place of %s", of, strings.Join(is, ", "), strings.Join(was, ", ")))
	}
	return bad
}
