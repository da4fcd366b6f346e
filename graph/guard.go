package graph

import "github.com/gnnactor/gnnactor/internal/fault"

// Guard calls f, which reads data of a store.Store, and returns its error. A store is
// read where it lies on the disk, and opening it checks no values; so f may come
// upon a file that was shortened meanwhile, a disk that fails, or values that were
// damaged. Without Guard the first two end the program, and the third panics or
// worse. With it they are errors, that name the file or the store and what to do.
// It covers f and the loops that f runs on a worker pool; other goroutines need
// their own. A panic that has another cause goes on.
//
// Whatever returns an error in this module needs no Guard; it is for programs that
// read a Dataset themselves.
func Guard(f func() error) error { return fault.Guard(f) }
