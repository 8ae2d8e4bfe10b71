//go:build !linux

package bus

import (
	"errors"
	"math"
	"os"
)

const groupSyncSupported = false

func syncFileSystem(*os.File) error { return errors.New("sync: group needs Linux; use sync: always") }

func dropCache(string) error { return nil } // only a failed group sync needs it

// freeBytes is not watched on this system: the server's own answer to a full disk is all there is.
func freeBytes(string) (free, total int64, err error) { return math.MaxInt64, math.MaxInt64, nil }

func isFull(string) bool { return false }
