-- Reads calls. It changes nothing: a call whose time passed is shown as if it had been ended.
--
-- KEYS     see calls.lua
-- ARGV[1]  how many IDs follow
-- ARGV     the IDs of calls, and then users, whose ongoing calls are read; at most max_call_batch of both
--
-- Returns {unreadable, calls}: unreadable is the ID of a call that another program wrote, if there is one. An element
-- of calls is empty if there is none. Each call is read once, and an ID alone stands for it after that: what apps say is
-- large.

local calls, seen = {}, {}
local function add(c)
  if c and not seen[c.id] then
    seen[c.id] = true
    calls[#calls + 1] = view(has_expired(c) and expired_call(c) or c)
  else
    calls[#calls + 1] = c and {c.id} or {}
  end
end

local ids = tonumber(ARGV[1])
for i = 2, ids + 1 do
  add(load_call(ARGV[i]))
end
if ARGV[ids + 2] then
  for i, id in ipairs(redis.call('HMGET', users_key, unpack(ARGV, ids + 2))) do
    local user, c = ARGV[ids + 1 + i], id and load_call(id)
    add(c and goes_on(c) and not has_expired(c) and (user == c.from or user == c.to) and c)
  end
end
return {unreadable or false, calls}
