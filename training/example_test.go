package training_test

import (
	"fmt"

	"github.com/gnnactor/gnnactor/training"
)

// A run makes two steps by itself and two in group 7. After a verdict on the last of them it goes
// back to step 3, and on in group 9.
func ExampleExtend() {
	var lineage []training.Run
	for step, group := range []int64{0, 0, 7, 7} {
		lineage = training.Extend(lineage, group, int64(step))
	}
	lineage = training.Extend(training.Cut(lineage, 3), 9, 3)
	fmt.Printf("%+v\n", lineage)
	fmt.Println("leads to step 4:", training.Chained(lineage, 4))
	// Output:
	// [{Group:0 First:0 Next:2} {Group:7 First:2 Next:3} {Group:9 First:3 Next:4}]
	// leads to step 4: true
}
