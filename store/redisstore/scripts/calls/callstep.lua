-- Does what a party of a call wants.
--
-- KEYS     see calls.lua
-- ARGV[1]  the ID
-- ARGV[2]  the nonce of this step
-- ARGV[3]  the user
-- ARGV[4]  the device
-- ARGV[5]  the action
-- ARGV[6]  what the app says now with accept and alive; '' if that stays
--
-- Returns {unreadable, step, copies}: unreadable is the ID of a call that another program wrote, if there is one;
-- copies is what has to be copied: user, until, user, until, …. There is neither a step nor copies unless the user is a
-- party.

local id, nonce, user, device, action, app = unpack(ARGV, 1, 6)
local c = load_call(id)
local party = c and (user == c.from and 'caller' or user == c.to and not c.caller_only and 'callee')
if not party then
  return {unreadable or false}
end

local expired = has_expired(c)
if expired then
  expire_call(c)
end
local state, outcome = step_call(c.state, c.to_device, action, party, device)

-- Records what the app says, and reports whether that is a change.
local function write_app()
  if app == '' or action ~= 'accept' and action ~= 'alive' or redis.call('HGET', apps_key, id) == app then
    return false
  end
  redis.call('HSET', apps_key, id, app)
  return true
end

local function change_state()
  c.by, c.by_device, c.nonce = user, device, nonce
  if state == 'active' or state == 'rejected' then
    c.to_device = device
  end
  if state ~= 'active' then
    finish_call(c, state, now)
    return
  end
  c.state, c.version, c.accepted = state, c.version + 1, now
  c.from_active = logical
  write_app()
  record_alive(c, user)
end

if outcome == 'stepped' then
  change_state()
elseif outcome == 'repeated' and c.nonce == nonce then
  outcome = 'stepped' -- the client sent it again, because the reply was lost
  write_when_full()
  if c.shown then
    note_parties(c)
  end
elseif outcome == 'repeated' then
  c.version = c.version + (goes_on(c) and write_app() and 1 or 0) -- first, for it fails when memory is full
  write_when_full()
  if c.state == 'active' then
    record_alive(c, user)
  end
end
if expired or outcome ~= 'refused' then
  if goes_on(c) then
    write_due(c)
    write_call(c)
  end
  save_clock()
end
local copies = note_all()
return {unreadable or false, step_reply(c, outcome, expired), copies}
