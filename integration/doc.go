// Package integration tests the built binary as its users run it: started, killed, frozen and restarted on the same store, with effects counted outside of it.
package integration
