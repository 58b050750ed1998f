-- Ends calls whose time passed, and deletes those that were over for long.
--
-- KEYS  see calls.lua
--
-- Returns {unreadable, steps, calls, kept, next, copies}: unreadable is the ID of a call that another program wrote, if
-- there is one; steps are those of the calls that it ended; calls is how many go on, kept how many are kept; next is
-- how many milliseconds later the next one expires, at most half of max_call_gap, 0 if more may be due, also to be
-- deleted. Copies is what has to be copied: user, until, user, until, …, of the parties of these calls, and of the first
-- users who have been in the outbox for a second, because their server did not come to copy. There are no more steps than
-- max_call_batch, no more calls are deleted, and no more users are taken.

local copy_after = 1000 -- milliseconds

local function passed(key)
  return redis.call('ZRANGE', key, '-inf', time_text(logical), 'BYSCORE', 'LIMIT', 0, max_call_batch)
end

write_when_full()
local steps = {}
local ids = passed(due_key)
for _, id in ipairs(ids) do
  local c = load_call(id)
  if not c then
    remove_unreadable(id)
  elseif not goes_on(c) then
    redis.call('ZREM', due_key, id)
  elseif not has_expired(c) then
    write_due(c)
  else
    expire_call(c)
    steps[#steps + 1] = step_reply(c, 'stepped', true)
  end
end
local old = passed(over_key)
for _, id in ipairs(old) do
  local c = load_call(id)
  if not c then
    remove_unreadable(id)
  elseif goes_on(c) then
    redis.call('ZREM', over_key, id)
  else
    remove_call(c)
  end
end
local wait = math.floor(max_call_gap / 2)
local first = first_time(due_key)
if math.max(#ids, #old) >= max_call_batch then
  wait = 0
elseif first then
  wait = math.min(wait, math.max(1, math.ceil(first - logical)))
end
-- What was noted in the future was noted before the clock of this Redis was set back. They are noted again, and so come
-- after those that could not be taken.
local left = redis.call('ZRANGE', outbox_key, '-inf', time_text(now - copy_after), 'BYSCORE', 'LIMIT', 0, max_call_batch)
if #left < max_call_batch then
  local from, rest = '(' .. time_text(now + max_ahead), max_call_batch - #left
  for _, user in ipairs(redis.call('ZRANGE', outbox_key, from, '(inf', 'BYSCORE', 'LIMIT', 0, rest)) do
    left[#left + 1] = user
  end
end
note(left)
if #left >= max_call_batch then
  wait = 0
end
local copies, going, kept = note_all(), count_due(), count_calls()
if not drop_if_none() then
  save_clock()
end
return {unreadable or false, steps, going, kept, wait, copies}
