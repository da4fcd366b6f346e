package store

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// startWriting asks the system to begin to write a range of a file. It is advice, which may fail.
func startWriting(f *os.File, from, bytes int64) {
	_ = unix.SyncFileRange(int(f.Fd()), from, bytes, unix.SYNC_FILE_RANGE_WRITE)
}

// setDirect says whether what is written to f passes the page cache by, and reports whether the system does so.
func setDirect(f *os.File, on bool) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return false
	}
	flags &^= unix.O_DIRECT
	if on {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags)
	return err == nil
}

// pageCache gives back the pages of a file that reading it from beginning to end
// brought to memory, and leaves those that were there, or that somebody has
// mapped.
type pageCache struct {
	f     *os.File
	mem   []byte // a mapping that nothing touches, to ask about its pages; nil: they cannot be told
	pages []byte // of the file from done to noted, a page each: bit 0: it was in memory
	done  int64
	noted int64
}

// noteAhead is more than the kernel reads ahead: what it read must not pass for
// pages that were there before. It is a multiple of the page size.
const noteAhead = 32 << 20

func newPageCache(f *os.File, size int64) *pageCache {
	c := &pageCache{f: f}
	if mem, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_NONE, unix.MAP_SHARED); err == nil {
		c.mem = mem
	}
	return c
}

// reading says that the file will be read up to offset to.
func (c *pageCache) reading(to int64) {
	page := int64(os.Getpagesize())
	to = min(to+noteAhead, int64(len(c.mem)))
	if to <= c.noted {
		return
	}
	had, more := len(c.pages), int((to-c.noted+page-1)/page)
	c.pages = append(c.pages, make([]byte, more)...)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&c.mem[c.noted])), uintptr(to-c.noted), uintptr(unsafe.Pointer(&c.pages[had])))
	if errno != 0 { // nothing is given back that may have been there
		for i := range c.pages[had:] {
			c.pages[had+i] = 1
		}
	}
	c.noted = to
}

// read says that the file was read up to offset to, and gives back what that
// brought. to is a multiple of the page size, or the end.
func (c *pageCache) read(to int64) {
	page := int64(os.Getpagesize())
	n := min(int((to-c.done+page-1)/page), len(c.pages))
	for i := 0; i < n; i++ {
		first := i
		for i < n && c.pages[i]&1 == 0 {
			i++
		}
		if i > first { // it is advice: it may fail
			_ = unix.Fadvise(int(c.f.Fd()), c.done+int64(first)*page, int64(i-first)*page, unix.FADV_DONTNEED)
		}
	}
	c.pages = append(c.pages[:0], c.pages[n:]...)
	c.done = to
}

func (c *pageCache) close() {
	if c.mem != nil {
		_ = unix.Munmap(c.mem) // it is a mapping
	}
}
