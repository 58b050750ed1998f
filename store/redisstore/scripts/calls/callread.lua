-- Reads calls. It changes nothing: a call whose time passed is shown as if it had been ended.
--
-- KEYS     see calls.lua
-- ARGV[1]  the ID of a call; '' to read the calls of users that go on
-- ARGV     then those users, at most max_call_batch
--
-- Returns {unreadable, calls}: unreadable is the ID of a call that another program wrote, if there is one. An element
-- of calls is empty if there is none. Each call is read once: what apps say is large.

if ARGV[1] ~= '' then
  local c = load_call(ARGV[1])
  return {unreadable or false, {c and view(has_expired(c) and expired_call(c) or c) or {}}}
end
local calls, seen = {}, {}
if ARGV[2] then
  for i, id in ipairs(redis.call('HMGET', users_key, unpack(ARGV, 2))) do
    local user, c = ARGV[i + 1], id and load_call(id)
    local mine = c and goes_on(c) and not has_expired(c) and (user == c.from or user == c.to)
    if mine and not seen[id] then
      seen[id] = view(c)
      calls[i] = seen[id]
    else
      calls[i] = mine and {id} or {}
    end
  end
end
return {unreadable or false, calls}
