// Package faults tests what clients get and what operators see while something is broken: real servers, a real Redis
// and real kills. Its tests have the build tag faults, because they take minutes: run them with make test-faults.
//
// Most faults are rows of a table (faults_test.go), which one driver runs (driver_test.go): it starts servers on a
// store, puts a load on them, breaks something (testbreaks_test.go), repairs it, and checks every acknowledged write
// and response, who follows the changes feed, and what operators see. To add a fault, add it to the table, with its
// row in docs/faults.md; TestRows compares them. Faults that need more have their own tests, in otherFaults:
// clocks, storms, connections that users hold, and calls.
//
// TestChaos breaks random parts in the same ways, for as long as make test-chaos says, an hour by default. A seed
// decides which and when (schedule_test.go). One server reaches Redis through proxies (testlink_test.go).
//
// There is one helper of each kind: a server process (testserver_test.go), clients that ping and look up
// (testload_test.go) with a ledger that knows every acknowledged write and what each response may be
// (testledger_test.go), and watchers of the changes feed (testwatcher_test.go) with a view of what they were told,
// checked with the ledger (testview_test.go). A WebSocket client that a test can break is in testsocket_test.go, many
// that connect again as the guide asks in testcrowd_test.go, a watcher who remembers all that it was sent in
// testtrail_test.go, pairs of users who call each other in testcalls_test.go, and what a webhook delivers to in
// testreceiver_test.go.
package faults
