-- Reads the outbox, and removes from it what was copied.
--
-- KEYS     see calls.lua
-- ARGV[1]  'noted' to read users that were noted some time ago, or 'copied'
-- ARGV     then for 'noted': how long ago, in milliseconds. For 'copied': user, until, user, until, …, what was copied
--
-- Returns {unreadable, copies}: unreadable is the ID of a call that another program wrote, if there is one; copies is
-- user, until, user, until, …, with the present values: of those that were noted, or of those that have changed since
-- they were copied.

local copies = {}
local function add(user)
  copies[#copies + 1] = user
  copies[#copies + 1] = call_digits(in_call_until(user))
end

-- What was noted in the future was noted before the clock of this Redis was set back.
if ARGV[1] == 'noted' then
  local upto = call_digits(now - ARGV[2])
  local users = redis.call('ZRANGE', outbox_key, '-inf', upto, 'BYSCORE', 'LIMIT', 0, max_call_batch)
  local rest = max_call_batch - #users
  if rest > 0 then
    local from = '(' .. call_digits(now + max_ahead)
    for _, user in ipairs(redis.call('ZRANGE', outbox_key, from, '+inf', 'BYSCORE', 'LIMIT', 0, rest)) do
      users[#users + 1] = user
    end
  end
  for _, user in ipairs(users) do
    add(user)
  end
else
  write_when_full()
  for i = 2, #ARGV, 2 do
    local user = ARGV[i]
    if in_call_until(user) == tonumber(ARGV[i + 1]) then
      redis.call('ZREM', outbox_key, user)
    else
      redis.call('ZADD', outbox_key, call_digits(now), user)
      add(user)
    end
  end
end
return {unreadable or false, copies}
