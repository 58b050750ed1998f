package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

func TestCallJSON(t *testing.T) {
	ringing := lastseen.Call{
		ID: "c1", From: "alice", To: `"bob"`, State: lastseen.Ringing, Version: 1,
		Created: 1_795_212_000_000, Expires: 1_795_212_030_000,
	}
	require.JSONEq(t, `{
		"id": "c1", "from": "alice", "to": "\"bob\"", "state": "ringing", "from_device": null, "to_device": null,
		"by": null, "created_at": "2026-11-20T22:00:00.000Z", "accepted_at": null, "ended_at": null,
		"expires_at": "2026-11-20T22:00:30.000Z", "app": null
	}`, string(appendCall(nil, ringing)))

	ended := lastseen.Call{
		ID: "c1", From: "alice", To: "bob", State: lastseen.Ended, Version: 3, FromDevice: "phone", ToDevice: "tab",
		By: "bob", ByDevice: "tab", Created: 1_795_212_000_000, Accepted: 1_795_212_001_000, Over: 1_795_212_002_000,
		App: `[1,{"sdp":"…"}]`,
	}
	require.JSONEq(t, `{
		"id": "c1", "from": "alice", "to": "bob", "state": "ended", "from_device": "phone", "to_device": "tab",
		"by": {"user": "bob", "device": "tab"},
		"created_at": "2026-11-20T22:00:00.000Z", "accepted_at": "2026-11-20T22:00:01.000Z",
		"ended_at": "2026-11-20T22:00:02.000Z", "expires_at": null, "app": [1, {"sdp": "…"}]
	}`, string(appendCall(nil, ended)))

	ended.ByDevice, ended.App = "", "not JSON"
	require.Contains(t, string(appendCall(nil, ended)), `"by":{"user":"bob","device":null}`)
	require.Contains(t, string(appendCall(nil, ended)), `"app":null`)
}
