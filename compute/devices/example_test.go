package devices_test

import (
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/compute/devices"
)

// A program that links no kind of device, as by import _ "…/compute/cuda", has the processor alone.
func ExampleOpen() {
	d, _, err := devices.Open(devices.Auto)
	fmt.Println("auto is the processor:", d == nil, err)
	_, _, err = devices.Open("cuda:0")
	fmt.Println("there is no cuda:0:", errors.Is(err, devices.ErrNone))
	// Output:
	// auto is the processor: true <nil>
	// there is no cuda:0: true
}
