package problem

// callProblems are about calls.
func callProblems() []Type {
	return []Type{
		{
			InvalidCall, 400, "Invalid call",
			"A user called themselves, app has more than 16 KiB, if has a value other than \"present\", or the " +
				"header Idempotency-Key is not 1 to 255 printable ASCII characters.",
			"Correct what the detail names. Keep large data in your app, and send where it is.",
		},
		{
			CallNotFound, 404, "Call not found",
			"The call does not exist, ended more than 10 minutes ago, or the user is not a party of it. The embedded " +
				"store forgets all calls when it restarts.",
			"Show the call as ended.",
		},
		{
			CallerBusy, 409, "Caller busy",
			"The caller is in another call, or one of theirs is ringing.",
			"End that call first. GET …/calls?user= returns it.",
		},
		{
			CalleeBusy, 409, "Callee busy",
			"The callee is in another call, which is ringing or active.",
			"Show that the user is busy, and let the caller try again later.",
		},
		{
			CalleeUnavailable, 409, "Callee unavailable",
			"The caller cannot see the callee; or the request has if=present, and the callee is grey.",
			"Show that the user is not available. Without if, a grey user can be called: a push message can wake " +
				"their phone.",
		},
		{
			CallRefused, 409, "Call refused",
			"The action is not possible in the state of the call: the other party or another device acted first, " +
				"or the call timed out. Only the callee can accept or reject a call. The member call has " +
				"the call as it is.",
			"Show the call as the member call has it.",
		},
		{
			IdempotencyKeyReused, 422, "Idempotency key reused",
			"The caller sent another request with the same Idempotency-Key before. A key is remembered while the " +
				"call that it started continues, and for 10 minutes after that.",
			"Choose a new random key for each call, and repeat it only when you send the same request again.",
		},
		{
			TooManyCalls, 429, "Too many calls",
			"The user started 100 calls that are not yet forgotten, which takes 10 minutes after their end; or the " +
				"namespace has 1,000,000 of them. Nothing was changed.",
			"Wait as long as Retry-After says.",
		},
		{
			CallTooSoon, 429, "Call too soon",
			"The last call of this caller to this callee was rejected, cancelled or missed. The wait (redial-wait) " +
				"is 10 seconds, doubles with each further call without an answer, and is 5 minutes at most.",
			"Let the caller try again after Retry-After.",
		},
		{
			NoCalls, 409, "No calls",
			"Users of the namespace cannot call each other: it is a sorted set that other programs write.",
			"Use another namespace for calls.",
		},
	}
}

// userProblems are about devices, availabilities and contacts.
func userProblems() []Type {
	return []Type{
		{
			InvalidDevice, 400, "Invalid device",
			"A device has an id of 1 to 64 bytes of UTF-8 without control characters, line breaks and bidirectional " +
				"overrides, a kind (web, mobile, desktop, service or other) and meta, a JSON object of at most " +
				"1 KiB. Its activity is active or idle.",
			"Correct what the detail names. Choose a random id for each page load or app start. Send activity only " +
				"with a device.",
		},
		{
			DevicesUnavailable, 409, "Devices unavailable",
			"The namespace has no devices and no connections: it is a sorted set that other programs write.",
			"Send pings and leaves without a device, over HTTP.",
		},
		{
			InvalidAvailability, 400, "Invalid availability",
			"An availability is away, busy, invisible, or null for none. Its end is for or until, not both, and ends " +
				"an availability or a note.",
			"Correct what the detail names. To clear everything, send DELETE.",
		},
		{
			InvalidNote, 400, "Invalid note",
			"A note has at most 140 characters of UTF-8, without control characters, line breaks and bidirectional " +
				"overrides.",
			"Shorten the note, or remove the character that the detail names.",
		},
		{
			NoAvailability, 409, "No availability",
			"Users of the namespace cannot set an availability: it is a sorted set that other programs write.",
			"Do not offer it in this namespace. Pings and leaves work.",
		},
		{
			AvailabilityNotReady, 503, "Availability not ready",
			"The user cannot become invisible: the Redis of this server deletes any key when its memory is full, and " +
				"so may lose what hides users. Nothing was changed.",
			"Show that the user is still visible. An operator has to set maxmemory-policy of Redis to noeviction.",
		},
		{
			NoContacts, 409, "No contacts",
			"Users of the namespace cannot have contacts: it is a sorted set that other programs write.",
			"Keep contacts elsewhere, and look users up by their IDs.",
		},
		{
			TooManyContacts, 409, "Too many contacts",
			"A user has at most 5,000 contacts. Nothing was changed.",
			"Remove contacts in the same request, or before.",
		},
		{
			ContactsChanged, 409, "Contacts changed meanwhile",
			"Another request changed the user's contacts while this one changed many. This one stopped: what it " +
				"removes is removed first, and part of what it adds can be missing.",
			"Read the contacts, and send the change again if it is still right.",
		},
	}
}

// CloseCode returns the code of the close frame of a connection that ends with an error.
func (c Code) CloseCode() int { return CloseCodes + c.Type().Status }

// CloseCodes is what close codes are above the status of the same error.
const CloseCodes = 4000

// connectProblems are about WebSockets.
func connectProblems() []Type {
	return []Type{
		{
			UpgradeRequired, 426, "Upgrade required",
			"The path serves WebSockets only, over HTTP/1.1 and in version 13 of the protocol.",
			"Open the path with a WebSocket client. Let proxies in between pass the headers Upgrade and Connection on.",
		},
		{
			UnknownFrame, 400, "Unknown frame",
			"The WebSocket does not have a frame of this name, or the first frame is not hello, or a later one is.",
			"Correct the name. The detail lists the allowed frames.",
		},
		{
			TimedOut, 408, "Timed out",
			"A WebSocket was closed because its client was too slow: it sent no hello within 5 seconds or a message " +
				"in parts that took too long, did not answer pings, or received nothing for 30 seconds.",
			"Connect again, with a pause that grows with each attempt.",
		},
		{
			ConnectionClosed, 410, "Connection closed",
			"A WebSocket was closed because its user was deleted, or an operator closed the user's connections.",
			"Do not connect again by itself. Ask the person to sign in again.",
		},
	}
}
