package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file reads what the scripts of calls return.

// readCalls runs callread.lua. It returns nil if no call is kept, see sendCalls.
func (s *Store) readCalls(ctx context.Context, ns namespace, args []any) ([]lastseen.Call, error) {
	reply, err := s.runCalls(ctx, ns, scripts.CallRead, 1, args...)
	if err != nil || len(reply) == 0 {
		return nil, err
	}
	elements, err := redisclient.Slice(reply[0], -1)
	if err != nil {
		return nil, err
	}
	calls, read := make([]lastseen.Call, len(elements)), map[string]lastseen.Call{}
	for i, element := range elements {
		values, err := redisclient.Slice(element, -1)
		if err != nil {
			return nil, err
		}
		switch len(values) {
		case 0:
			continue
		case 1: // it is in the reply before
			id, _ := values[0].(string)
			calls[i] = read[id]
		default:
			if calls[i], _, err = readCallView(element); err != nil {
				return nil, err
			}
			read[calls[i].ID] = calls[i]
		}
	}
	return calls, nil
}

// readCallSteps reads the steps of a reply: see step_reply in calls.lua.
func readCallSteps(reply any) (steps []store.CallStep, err error) {
	elements, err := redisclient.Slice(reply, -1)
	if err != nil {
		return nil, err
	}
	for _, element := range elements {
		step, err := readCallStep(element)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func readCallStep(reply any) (step store.CallStep, err error) {
	values, err := redisclient.Slice(reply, 3)
	if err != nil {
		return store.CallStep{}, err
	}
	outcome, _ := values[2].(string)
	step = store.CallStep{Outcome: lastseen.CallOutcome(outcome), Expired: values[0] == int64(1)}
	step.Call, step.CallerOnly, err = readCallView(values[1])
	return step, err
}

// readInCalls reads what has to be copied: user, until, user, until, ….
func readInCalls(reply any) (all []inCall, err error) {
	values, err := redisclient.Slice(reply, -1)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(values); i += 2 {
		user, _ := values[i].(string)
		until, err := redisclient.Int(values[i+1])
		if err != nil {
			return nil, err
		}
		all = append(all, inCall{user: user, until: lastseen.Instant(until)})
	}
	return all, nil
}

// readKeepAlive reads the reply of callkeepalive.lua to a number of users.
func readKeepAlive(reply []any, users int) (h store.KeptAlive, err error) {
	if h.Steps, err = readCallSteps(reply[0]); err != nil {
		return store.KeptAlive{}, err
	}
	values, err := redisclient.Slice(reply[1], 3*users)
	if err != nil {
		return store.KeptAlive{}, err
	}
	h.Calls = make([]store.AliveCall, users)
	for i := range h.Calls {
		id, _ := values[3*i].(string)
		version, _ := values[3*i+1].(int64)
		rest, _ := values[3*i+2].(int64)
		h.Calls[i] = store.AliveCall{ID: id, Version: version, Rest: time.Duration(rest) * time.Millisecond}
	}
	return h, nil
}

// readExpired reads the reply of callexpire.lua.
func readExpired(reply []any) (expired store.ExpiredCalls, err error) {
	var numbers [3]int64
	for i := range numbers {
		numbers[i], _ = reply[1+i].(int64)
	}
	expired.Steps, err = readCallSteps(reply[0])
	expired.Calls, expired.Kept = int(numbers[0]), int(numbers[1])
	expired.Next = time.Duration(numbers[2]) * time.Millisecond
	return expired, err
}

// readCallView reads a call as scripts return it: see view in calls.lua.
func readCallView(reply any) (c lastseen.Call, callerOnly bool, err error) {
	values, err := redisclient.Slice(reply, 4)
	if err != nil {
		return c, false, err
	}
	var texts [4]string
	for i, value := range values {
		texts[i], _ = value.(string)
	}
	c, callerOnly, ok := parseCall(texts[1])
	expires, err := strconv.ParseInt(texts[2], 10, 64)
	if !ok || err != nil || texts[0] == "" {
		return lastseen.Call{}, false, fmt.Errorf("unexpected script reply: %q is not a call", texts[0])
	}
	c.ID, c.Expires, c.App = texts[0], lastseen.Instant(expires), texts[3]
	return c, callerOnly, nil
}

// parseCall reads the text of a call: see calls.lua, which has read it before and returns nothing else.
func parseCall(text string) (c lastseen.Call, callerOnly, ok bool) {
	lines := strings.SplitN(text, "\n", 8)
	if len(lines) != 8 {
		return c, false, false
	}
	head := strings.Split(lines[0], " ")
	if len(head) != 12 {
		return c, false, false
	}
	var numbers [4]int64 // version, created, accepted, over
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.ParseInt(head[1+i], 10, 64); err != nil {
			return c, false, false
		}
	}
	return lastseen.Call{
		State: lastseen.CallState(head[0]), Version: numbers[0], Created: lastseen.Instant(numbers[1]),
		Accepted: lastseen.Instant(numbers[2]), Over: lastseen.Instant(numbers[3]),
		From: lines[1], To: lines[2], FromDevice: lines[3], ToDevice: lines[4], By: lines[5], ByDevice: lines[6],
	}, strings.Contains(head[10], "u"), true
}
