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
			"The user cannot become invisible: the Redis of this server deletes any key when its memory is full, and " +
				"so may lose what hides users. Nothing was changed.",
			"Show that the user is still visible. An operator has to set maxmemory-policy of Redis to noeviction.",
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
		{
			codeContactsChanged, 409, "Contacts changed meanwhile",
			"Another request changed the user's contacts while this one changed many. This one stopped: what it " +
				"removes is removed first, and part of what it adds can be missing.",
			"Read the contacts, and send the change again if it is still right.",
		},
	}
}
