// Package integration tests the built binary as its users run it: started, killed, frozen and restarted on the same store, with effects counted outside of it.
//
// The battles of several daemons (daemons_share_test.go) are short unless TRIGGERD_TEST_FULL is set in the environment: then 2,000 events, 200 ticks,
// 15 kills and 10 freezes of daemons, and on the cluster 5 kills of stream leaders as well, which takes some minutes each.
package integration
