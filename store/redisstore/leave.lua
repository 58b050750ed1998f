-- Records that users went away.
--
-- KEYS[1]  one shard of a namespace
-- ARGV     score, user, score, user, …: the scores are times mirrored at zero; each user once, at
--          most 512 of them
--
-- Returns the users' scores before, in order, nil for those unknown.

local users = {}
for i = 2, #ARGV, 2 do
  users[#users + 1] = ARGV[i]
end
local scores = redis.call('ZMSCORE', KEYS[1], unpack(users))

-- Present until t: left at t. Left before t: left at t. Present later, hidden, unknown, or
-- closer to zero than any time: unchanged.
local add = {}
for i = 1, #users do
  local score, left = scores[i], ARGV[2 * i - 1]
  if score then
    local now, new = tonumber(score), tonumber(left)
    if (now >= 1 and now <= -new) or (now <= -1 and new < now) then
      add[#add + 1] = left
      add[#add + 1] = users[i]
    end
  end
end

if #add > 0 then
  redis.call('ZADD', KEYS[1], 'XX', unpack(add))
end
return scores
