package links_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/links"
)

// A batch of four links, with two pairs each that nothing joins, sampled from a graph
// that lacks the links held out.
func ExampleSplit() {
	ds := generate.Builtin()
	l, kept, err := links.Split(ds.Graph)
	if err != nil {
		log.Fatal(err)
	}
	ds.Graph = kept
	p, err := sampling.Prepare(context.Background(), sampling.Spec{Name: "neighbor", Fanouts: []int{5, 5}}, ds, 1)
	if err != nil {
		log.Fatal(err)
	}
	s, b := l.NewSampler(p.NewSampler(), 2, false), new(sampling.Batch)
	b.ID = sampling.ID{Phase: "train"}
	if err := s.Sample(b, b.ID.Key(1), l.Of(links.Train)[:4]); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(b.Seeds)/2, "pairs; the first is a link:", l.Joined(b.Seeds[0], b.Seeds[1]), "and the last:", l.Joined(b.Seeds[22], b.Seeds[23]))
	// Output: 12 pairs; the first is a link: true and the last: false
}
