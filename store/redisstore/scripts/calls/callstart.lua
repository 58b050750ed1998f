-- Begins a call, which rings.
--
-- KEYS      see calls.lua
-- ARGV[1]   the ID
-- ARGV[2]   the nonce of this step
-- ARGV[3]   the caller
-- ARGV[4]   the callee
-- ARGV[5]   the device of the caller
-- ARGV[6]   how long it rings at most, in milliseconds
-- ARGV[7]   for how long a party of the active call need not be active, in milliseconds
-- ARGV[8]   1 if the parties are shown to be in the call
-- ARGV[9]   1 if the caller must not learn what the callee does
-- ARGV[10]  what the app says, '' for nothing
-- ARGV[11]  the idempotency key, '' for none
-- ARGV[12]  the digest
-- ARGV[13]  1 if the callee cannot be called
--
-- Returns {unreadable, refusal, fresh, step}: unreadable is the ID of a call that another program wrote, if there is
-- one; refusal is '' for none; fresh is 1 if no call went on before.

local id, nonce, from, to, from_device = unpack(ARGV, 1, 5)
local app, key, digest = ARGV[10], ARGV[11], ARGV[12]

local function reply(refusal, fresh, step)
  return {unreadable or false, refusal, fresh and 1 or 0, step or false}
end

-- Returns the call of a field that goes on. One whose time passed does not keep a party busy. ExpireCalls ends it, so
-- that its parties are notified.
local function going(field, user)
  local mine = redis.call('HGET', users_key, field)
  local c = mine and load_call(mine)
  return c and goes_on(c) and not has_expired(c) and (user == c.from or user == c.to) and c
end

-- Returns whether a call to a user rings, also one that rings for its caller alone. That is when callees who are not
-- there are busy.
local function rings(user)
  local c = going(user, user)
  return going(user .. '\0', user) or c and c.state == 'ringing' and c.to == user
end

-- Returns a call that this step would begin again; nil for none.
local function started_before()
  local field = from .. '\0' .. key
  local text = key ~= '' and redis.call('HGET', keys_key, field)
  local kept, kept_digest = string.match(text or '', '^(%S*) (.*)$')
  local c = load_call(kept or id)
  if not c or c.from ~= from or kept and c.key ~= key then
    return nil
  end
  return c, kept and kept_digest ~= digest
end

local before, reused = started_before()
if reused then
  return reply('reused')
elseif before then
  if has_expired(before) then
    before = expired_call(before)
  end
  local again = before.nonce == nonce and before.version == 1
  return reply('', false, step_reply(before, again and 'stepped' or 'repeated', false))
end

if ARGV[13] == '1' then
  return reply('callee unavailable')
end
if going(from, from) then
  return reply('caller busy')
end
local busy, hidden = going(to, to) and true or false, ARGV[9] == '1'
if rings(to) or busy and not hidden then
  return reply('callee busy')
end

-- The members of the calls that the caller started. Those of calls that are not kept any longer, which another program
-- wrote, are deleted where they matter.
local low, high = '[' .. from .. '\0f', '(' .. from .. '\0g'
if redis.call('ZLEXCOUNT', index_key, low, high) >= max_calls_of_user then
  for _, member in ipairs(redis.call('ZRANGEBYLEX', index_key, low, high, 'LIMIT', 0, max_calls_of_user)) do
    if not load_call(string.sub(member, #from + 3)) then
      redis.call('ZREM', index_key, member)
    end
  end
end
if redis.call('ZLEXCOUNT', index_key, low, high) >= max_calls_of_user or count_calls() >= max_calls then
  return reply('too many')
end

local c = {
  id = id, nonce = nonce, state = 'ringing', version = 1, from = from, to = to,
  from_device = from_device, to_device = '', by = from, by_device = from_device, key = key,
  created = now, accepted = 0, over = 0, due = logical + ARGV[6],
  from_active = logical, to_active = logical, timeout = tonumber(ARGV[7]), shown_until = 0, shown = ARGV[8] == '1',
  caller_only = busy,
}
local fresh = count_due() == 0
write_call(c)
save_clock()
keep_keys()
write_due(c)
if app ~= '' then
  redis.call('HSET', apps_key, id, app)
end
redis.call('HSET', users_key, from, id)
redis.call('HSET', users_key, c.caller_only and to .. '\0' or to, id)
redis.call('ZADD', index_key, '0', from .. '\0f' .. id, '0', to .. '\0t' .. id)
if key ~= '' then
  redis.call('HSET', keys_key, from .. '\0' .. key, id .. ' ' .. digest)
end
return reply('', fresh, step_reply(c, 'stepped', false))
