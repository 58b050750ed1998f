package redisstore

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestCallsFollowTheRule: callrule.lua does what lastseen.Call.Step does, for each state, action and party, and for
// each device.
func TestCallsFollowTheRule(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	options, err := redis.ParseURL(redistest.Start(t))
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	rule := redis.NewScript(luaSource("callrule.lua") + "return {step_call(unpack(ARGV))}")
	expired := redis.NewScript(luaSource("callrule.lua") + "return expired_states[ARGV[1]] or ARGV[1]")
	for _, state := range lastseen.CallStates() {
		for _, action := range lastseen.CallActions() {
			for _, p := range []lastseen.CallParty{lastseen.Caller, lastseen.Callee, ""} {
				for _, accepted := range []string{"", "phone"} {
					for _, device := range []string{"", "phone", "laptop"} {
						args := []any{string(state), accepted, string(action), string(p), device}
						got, err := rule.Run(ctx, client, nil, args...).StringSlice()
						require.NoError(t, err)
						after, outcome := lastseen.Call{State: state, ToDevice: accepted}.Step(action, p, device)
						require.Equal(t, []string{string(after), string(outcome)}, got, "%s of %s on %q, in %s on %q",
							action, p, device, state, accepted)
					}
				}
			}
		}
		got, err := expired.Run(ctx, client, nil, string(state)).Text()
		require.NoError(t, err)
		require.Equal(t, string(state.Expired()), got)
	}
}
