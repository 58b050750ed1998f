// Package faults tests what clients get and what operators see while something is broken: real servers, a real Redis
// and real kills. Its tests have the build tag faults, because they take minutes: run them with make test-faults.
//
// The helpers are a server process (testserver_test.go), its metrics (testmetrics_test.go), a proxy that spoils
// connections (testproxy_test.go), a load of clients (testload_test.go), and a ledger that knows every acknowledged
// write and what each response may be (testledger_test.go). docs/operations.md has a row for each fault.
//
// TestChaos breaks random parts for as long as make test-chaos says, an hour by default. A seed decides which and when
// (testschedule_test.go, testfaultkinds_test.go). One server reaches Redis through proxies (testlink_test.go), bursts
// are in testbursts_test.go, and testprobe_test.go measures how long each server does not serve.
//
// Tests of connections that users hold have a WebSocket client that a test can break (testsocket_test.go), many that
// connect again as the guide asks (testcrowd_test.go), and watchers who remember all that they were sent
// (testtrail_test.go). Pairs of users who call each other are in testcalls_test.go.
package faults
