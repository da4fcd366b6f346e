package features

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages, which make random rows cheaper to find. That
// the system has none to give is no error.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
