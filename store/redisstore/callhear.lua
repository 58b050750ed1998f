-- Notes that users take part in their calls.
--
-- KEYS  see calls.lua
-- ARGV  user, device, user, device, …: at most max_call_batch users
--
-- Returns {unreadable, steps}: unreadable is the ID of a call that another program wrote, if there is one; the steps
-- are those of calls that expired before.

local users, steps, heard, order = {}, {}, {}, {}
for i = 1, #ARGV, 2 do
  users[#users + 1] = ARGV[i]
end

local function is_on_device(c, user, device)
  local known = user == c.from and c.from_device or c.to_device
  return known == '' or known == device
end

for i, id in ipairs(redis.call('HMGET', users_key, unpack(users))) do
  local user, c = users[i], id and load_call(id)
  local active = c and c.state == 'active'
  if active and has_expired(c) then
    local noted = expire_call(c)
    steps[#steps + 1] = step_reply(c, 'stepped', true, noted)
  elseif active and (user == c.from or user == c.to) and is_on_device(c, user, ARGV[2 * i]) then
    if not order[1] then
      write_when_full()
    end
    hear_party(c, user)
    order[#order + 1] = not heard[id] and c or nil
    heard[id] = true
  end
end
for _, c in ipairs(order) do
  write_due(c)
  write_call(c)
end
if order[1] or steps[1] then
  save_clock()
end
return {unreadable or false, steps}
