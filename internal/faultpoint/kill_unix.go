//go:build unix

package faultpoint

import (
	"os"
	"syscall"
)

// killSelf ends the process as kill -9 does: nothing deferred runs, nothing is
// flushed, no connection is closed in an orderly way.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
