-- Records that users left.
--
-- KEYS[1]  one shard of a namespace without a feed and devices
-- ARGV[1]  the latest of the times that follow, in milliseconds
-- ARGV[2]  how many milliseconds a score of 1 is: 1 or 1000
-- ARGV     then score, past, user, score, past, user, …: each score is a time mirrored at zero, past
--          is the millisecond after that time; each user once, at most 512 of them
--
-- Returns {created}, or {created, scores}: created is 1 if the key did not exist before. Without
-- scores every user has now left at the time that came with them; otherwise scores are theirs
-- afterwards, in order, nil for those unknown.
--
-- Times stay strings or are passed as numbers: see pingplain.lua.

local key, count = KEYS[1], (#ARGV - 2) / 3
local created = 1 - redis.call('EXISTS', key)

-- Times too far ahead are replaced by the time of this Redis, whatever the caller's clock shows.
local now = clock()
local replaced = tonumber(ARGV[1]) > now + max_ahead
if replaced then
  local limit = (now + max_ahead) / ARGV[2]
  for i = 3, #ARGV, 3 do
    if -tonumber(ARGV[i]) > limit then
      ARGV[i] = -(now / ARGV[2])
      ARGV[i + 1] = (now + 1) / ARGV[2]
    end
  end
end

local users = {}
for i = 5, #ARGV, 3 do
  users[#users + 1] = ARGV[i]
end
local scores = redis.call('ZMSCORE', key, unpack(users))

-- Unknown, present until t or left before t: left at t. Present later, or left later: unchanged.
local add = {}
for i = 1, count do
  local score, left, past = scores[i], ARGV[3 * i], ARGV[3 * i + 1]
  local before = score and tonumber(score)
  if not score or (before < tonumber(past) and before > tonumber(left)) then
    add[#add + 1] = left
    add[#add + 1] = users[i]
  end
end
if #add > 0 then
  redis.call('ZADD', key, unpack(add))
end
if #add == 2 * count and not replaced then
  return {created}
end
return {created, redis.call('ZMSCORE', key, unpack(users))}
