//go:build !unix

package graph

// lockStore does nothing: this platform has no lock that the package uses.
func lockStore(string) (unlock func() error, err error) {
	return func() error { return nil }, nil
}

func holdDir(string) (release func(), held bool) { return nil, false }
