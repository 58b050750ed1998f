-- The rule of calls: what Call.Step of package lastseen does.

-- What actions of a party do in a state: the state after it. The same state means that the party did this before.
local call_steps = {
  ringing = {
    caller = {['end'] = 'cancelled', alive = 'ringing'},
    callee = {accept = 'active', reject = 'rejected', ['end'] = 'rejected', alive = 'ringing'},
  },
  active = {
    caller = {['end'] = 'ended', alive = 'active'},
    callee = {accept = 'active', ['end'] = 'ended', alive = 'active'},
  },
  ended = {caller = {['end'] = 'ended'}, callee = {['end'] = 'ended'}},
  rejected = {caller = {}, callee = {reject = 'rejected', ['end'] = 'rejected'}},
  cancelled = {caller = {['end'] = 'cancelled'}, callee = {}},
  missed = {caller = {}, callee = {}},
  lost = {caller = {}, callee = {}},
}

-- Returns the state after an action of a party on a device, and how it ended for the party. to_device is the device on
-- which the callee accepted.
local function step_call(state, to_device, action, party, device)
  local after = (call_steps[state][party] or {})[action]
  if not after or state == 'active' and action == 'accept' and device ~= to_device then
    return state, 'refused'
  end
  return after, after == state and 'repeated' or 'stepped'
end

-- The states of calls whose time passed.
local expired_states = {ringing = 'missed', active = 'lost'}

