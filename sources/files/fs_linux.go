package files

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// ctimeOf is when the file's status last changed, in Unix nanoseconds.
func ctimeOf(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano()
	}
	return info.ModTime().UnixNano()
}

// remote reports whether a folder lies on a file system on which others make changes that this machine's watches do not see.
// The numbers are those of statfs(2).
func remote(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC,
		unix.V9FS_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC:
		return true
	}
	return false
}
