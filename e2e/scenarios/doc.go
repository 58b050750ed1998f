// Package scenarios tests stories of the whole product: what apps, their users and operators do with one server or
// several, over HTTP and WebSocket. The examples are among the apps.
//
// Its tests start the program as users do. See internal/testserver.
package scenarios
