package sampling

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge asks for huge pages under s, which must not have been touched; a
// hint.
func adviseHuge[T any](s []T) {
	const page = 1 << 12
	size := uintptr(len(s)) * unsafe.Sizeof(s[0])
	begin := uintptr(unsafe.Pointer(&s[0]))
	skip := -begin & (page - 1)
	if size < skip+page {
		return
	}
	_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&s[0]), skip)), size-skip), unix.MADV_HUGEPAGE)
}
