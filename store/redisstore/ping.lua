-- Records that users were here.
--
-- KEYS[1]  one shard of a namespace
-- ARGV     score, user, time, user, …: each user once, at most 512 of them
--
-- Returns {created, scores}: created is 1 if the key did not exist before; scores are the users'
-- scores before, in order, nil for those unknown.
--
-- Times stay the strings that came in, or numbers compared with numbers: Lua writes a number with
-- 14 digits, which would round it.

local users = {}
for i = 2, #ARGV, 2 do
  users[#users + 1] = ARGV[i]
end
local scores = redis.call('ZMSCORE', KEYS[1], unpack(users))

-- Someone who left at or after this ping stays away; everyone else is left to GT, which keeps the
-- later time, and anyone hidden where they are.
local add, known = {}, false
for i = 1, #users do
  local score, at = scores[i], ARGV[2 * i - 1]
  known = known or score
  if not score or -tonumber(score) < tonumber(at) then
    add[#add + 1] = at
    add[#add + 1] = users[i]
  end
end

local created = 0
if not known and redis.call('EXISTS', KEYS[1]) == 0 then
  created = 1
end
if #add > 0 then
  redis.call('ZADD', KEYS[1], 'GT', unpack(add))
end
return {created, scores}
