package api

// closeCode returns the code of the close frame of a connection that ends with an error.
func (c code) closeCode() int { return closeCodes + c.problemType().Status }

// closeCodes is what close codes are above the status of the same error.
const closeCodes = 4000

// connectProblems are about WebSockets.
func connectProblems() []ErrorCode {
	return []ErrorCode{
		{
			codeUpgradeRequired, 426, "Upgrade required",
			"The path serves WebSockets only, over HTTP/1.1 and in version 13 of the protocol.",
			"Open the path with a WebSocket client. Let proxies in between pass the headers Upgrade and Connection on.",
		},
		{
			codeUnknownFrame, 400, "Unknown frame",
			"The WebSocket does not have a frame of this name, or the first frame is not hello, or a later one is.",
			"Correct the name. The detail lists the allowed frames.",
		},
		{
			codeTimedOut, 408, "Timed out",
			"A WebSocket was closed because its client was too slow: it sent no hello within 5 seconds or a message " +
				"in parts that took too long, did not answer pings, or received nothing for 30 seconds.",
			"Connect again, with a pause that grows with each attempt.",
		},
		{
			codeConnectionClosed, 410, "Connection closed",
			"A WebSocket was closed because its user was deleted, or an operator closed the user's connections.",
			"Do not connect again by itself. Ask the person to sign in again.",
		},
	}
}
