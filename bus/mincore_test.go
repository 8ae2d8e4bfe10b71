//go:build linux

package bus

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func mincore(data, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
