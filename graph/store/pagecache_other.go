//go:build !linux

package store

import "os"

// pageCache leaves what reading does to the page cache to this platform.
type pageCache struct{}

func newPageCache(*os.File, int64) *pageCache { return nil }

func (*pageCache) reading(int64) {}
func (*pageCache) read(int64)    {}
func (*pageCache) close()        {}

func startWriting(*os.File, int64, int64) {}

func setDirect(*os.File, bool) bool { return false }
