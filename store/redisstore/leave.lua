-- Records that users went away.
--
-- KEYS[1]  one shard of a namespace
-- ARGV[1]  the earliest time
-- ARGV     then score, past, user, score, past, user, …: each score is a time mirrored at zero, past
--          is the millisecond after that time; each user once, at most 512 of them
--
-- Returns the users' scores before, in order, nil for those unknown.

local users = {}
for i = 4, #ARGV, 3 do
  users[#users + 1] = ARGV[i]
end
local scores = redis.call('ZMSCORE', KEYS[1], unpack(users))

-- Present until t: left at t. Left before t: left at t. Present later, hidden, unknown, or
-- closer to zero than any time: unchanged.
local earliest = tonumber(ARGV[1])
local add = {}
for i = 1, #users do
  local score, left, past = scores[i], ARGV[3 * i - 1], tonumber(ARGV[3 * i])
  if score then
    local now, new = tonumber(score), tonumber(left)
    if (now >= earliest and now < past) or (now <= -earliest and new < now) then
      add[#add + 1] = left
      add[#add + 1] = users[i]
    end
  end
end

if #add > 0 then
  redis.call('ZADD', KEYS[1], 'XX', unpack(add))
end
return scores
