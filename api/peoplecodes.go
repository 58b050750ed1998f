package api

// availabilityProblems are about what users say.
func availabilityProblems() []ErrorCode {
	return []ErrorCode{
		{
			codeInvalidAvailability, 400, "Invalid availability",
			"An availability is away, busy, invisible, or null for none. Its end is for or until, not both, and ends " +
				"an availability or a note.",
			"Correct what the detail names. To clear everything, send DELETE.",
		},
		{
			codeInvalidNote, 400, "Invalid note",
			"A note has at most 140 characters of UTF-8, without control characters, line breaks and bidirectional " +
				"overrides.",
			"Shorten the note, or remove the character that the detail names.",
		},
		{
			codeNoAvailability, 409, "No availability",
			"Users of the namespace cannot set an availability: it is a sorted set that other programs write.",
			"Do not offer it in this namespace. Pings and leaves work.",
		},
		{
			codeAvailabilityNotReady, 503, "Availability not ready",
			"The user cannot become invisible yet: another server may not know that the namespace has invisible " +
				"users. It can happen for half a minute after the first such request in a namespace. Nothing was " +
				"changed.",
			"Show that the user is still visible, wait as long as Retry-After says and try again. An operator can " +
				"avoid it with the setting redis-invisible, on all servers.",
		},
	}
}

// contactProblems are about contacts.
func contactProblems() []ErrorCode {
	return []ErrorCode{
		{
			codeNoContacts, 409, "No contacts",
			"Users of the namespace cannot have contacts: it is a sorted set that other programs write.",
			"Keep contacts elsewhere, and look users up by their IDs.",
		},
		{
			codeTooManyContacts, 409, "Too many contacts",
			"A user has at most 5,000 contacts. Nothing was changed.",
			"Remove contacts in the same request, or before.",
		},
	}
}
