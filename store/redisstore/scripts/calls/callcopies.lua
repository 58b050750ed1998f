-- Removes from the outbox what was copied.
--
-- KEYS  see calls.lua
-- ARGV  user, until, user, until, …: what was copied
--
-- Returns {unreadable, copies}: unreadable is the ID of a call that another program wrote, if there is one; copies is
-- user, until, user, until, …, with the present values, of those that have changed since they were copied.

write_when_full()
local users, copied = {}, {}
for i = 1, #ARGV, 2 do
  users[#users + 1] = ARGV[i]
  copied[ARGV[i]] = ARGV[i + 1]
end
local present, done = copies_of(users), {}
for i = 1, #present, 2 do
  local user, ends = present[i], present[i + 1]
  if ends == copied[user] then
    done[#done + 1] = user
  else
    note({user})
  end
end
if done[1] then
  redis.call('ZREM', outbox_key, unpack(done))
end
local copies = note_all()
return {unreadable or false, copies}
