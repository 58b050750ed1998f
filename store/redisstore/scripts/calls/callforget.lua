-- Deletes calls of a user, at most max_call_batch. Ongoing calls end, and their parties are to be copied.
--
-- KEYS     see calls.lua
-- ARGV[1]  the user
--
-- Returns {unreadable, more, copies}: unreadable is the ID of a call that another program wrote, if there is one; more is
-- 1 if there may be more calls; copies is what has to be copied: user, until, user, until, ….

local user = ARGV[1]
local low, high = '[' .. user .. '\0', '(' .. user .. '\1'
local members = redis.call('ZRANGEBYLEX', index_key, low, high, 'LIMIT', 0, max_call_batch)
for _, member in ipairs(members) do
  local c = load_call(string.sub(member, #user + 3))
  if c and (c.from == user or c.to == user) then
    if goes_on(c) then
      finish_call(c, 'ended', now)
    end
    remove_call(c)
  end
  redis.call('ZREM', index_key, member)
end
local copies = note_all()
if members[1] and not drop_if_none() then
  save_clock()
end
return {unreadable or false, #members >= max_call_batch and 1 or 0, copies}
