-- Reads the outbox, and removes from it what was copied.
--
-- KEYS     see calls.lua
-- ARGV[1]  'noted' to read users that were noted some time ago, or 'copied'
-- ARGV     then for 'noted': how long ago, in milliseconds. For 'copied': user, until, user, until, …, what was copied
--
-- Returns {unreadable, copies}: unreadable is the ID of a call that another program wrote, if there is one; copies is
-- user, until, user, until, …, with the present values: of those that were noted, or of those that have changed since
-- they were copied.

-- What was noted in the future was noted before the clock of this Redis was set back.
local function noted_users()
  local upto = call_digits(now - ARGV[2])
  local users = redis.call('ZRANGE', outbox_key, '-inf', upto, 'BYSCORE', 'LIMIT', 0, max_call_batch)
  local rest = max_call_batch - #users
  if rest > 0 then
    local from = '(' .. call_digits(now + max_ahead)
    for _, user in ipairs(redis.call('ZRANGE', outbox_key, from, '+inf', 'BYSCORE', 'LIMIT', 0, rest)) do
      users[#users + 1] = user
    end
  end
  return users
end

if ARGV[1] == 'noted' then
  local users = noted_users()
  local copies = with_values(users, in_calls_until(users))
  return {unreadable or false, copies}
end

write_when_full()
local users, done, changed, changed_ends = {}, {}, {}, {}
for i = 2, #ARGV, 2 do
  users[#users + 1] = ARGV[i]
end
for i, ends in ipairs(in_calls_until(users)) do
  if ends == ARGV[2 * i + 1] then
    done[#done + 1] = users[i]
  else
    changed[#changed + 1], changed_ends[#changed_ends + 1] = users[i], ends
  end
end
if done[1] then
  redis.call('ZREM', outbox_key, unpack(done))
end
local copies = note_users(changed, changed_ends)
return {unreadable or false, copies}
