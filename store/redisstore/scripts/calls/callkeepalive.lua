-- Notes that users take part in their calls.
--
-- KEYS  see calls.lua
-- ARGV  user, device, user, device, …: at most max_call_batch users
--
-- Returns {unreadable, steps, active, copies}: unreadable is the ID of a call that another program wrote, if there is
-- one; the steps are those of calls that expired before. Received has three values for each user: the ID of the call in
-- which the user was active, its version, and in how many milliseconds it expires; '', 0 and 0 for a user who was
-- ignored. Copies is what has to be copied: user, until, user, until, ….

local users, steps, calls, order = {}, {}, {}, {}
for i = 1, #ARGV, 2 do
  users[#users + 1] = ARGV[i]
end

local function is_on_device(c, user, device)
  local known = user == c.from and c.from_device or c.to_device
  return known == '' or known == device
end

-- By ID, of calls that were received: whether the end in the details of their parties moves.
local renewed = {}
local function keep_alive(c, user)
  if not order[1] then
    write_when_full()
  end
  if renewed[c.id] == nil then
    order[#order + 1] = c
  end
  renewed[c.id] = record_alive(c, user) or renewed[c.id] or false
end

local present = load_actives(users[1] and redis.call('HMGET', users_key, unpack(users)) or {})
for i, user in ipairs(users) do
  local c = present[i]
  local active = c and c.state == 'active'
  if active and has_expired(c) then
    c = load_call(c.id) -- with all fields, and as it is if it was ended above
    if c and has_expired(c) then
      expire_call(c)
      steps[#steps + 1] = step_reply(c, 'stepped', true)
    end
  elseif active and (user == c.from or user == c.to) and is_on_device(c, user, ARGV[2 * i]) then
    keep_alive(c, user)
    calls[i] = c
  end
end
write_active(order, renewed)
if order[1] or steps[1] then
  save_clock()
end
local reply = {}
for i = 1, #users do
  local c = calls[i]
  reply[#reply + 1] = c and c.id or ''
  reply[#reply + 1] = c and c.version or 0
  reply[#reply + 1] = c and c.due - logical or 0
end
local copies = note_all()
return {unreadable or false, steps, reply, copies}
