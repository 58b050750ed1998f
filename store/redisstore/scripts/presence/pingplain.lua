-- Records that users were seen.
--
-- KEYS[1]  one shard of a namespace without a feed
-- ARGV[1]  the earliest of the times that follow, mirrored at zero
-- ARGV[2]  the latest of them, in milliseconds
-- ARGV[3]  how many milliseconds a score of 1 is: 1 or 1000
-- ARGV[4]  1 to return the previous score of the first user
-- ARGV     then time, user, time, user, …: each user once, at most 512 of them
--
-- Returns {created, scores, previous}: created is 1 if the key did not exist before. If scores is nil, every user is now
-- present at the time that came with them; otherwise scores are theirs afterwards, in order, nil for those unknown.
-- previous is the score of the first user before, nil if the user was unknown or it was not asked for. Both can be
-- missing.
--
-- Times stay the strings of ARGV, or numbers that are only compared or passed to Redis: Lua formats a number with 14
-- digits, which would round it.

local key, count = KEYS[1], (#ARGV - 4) / 2
local created = 1 - redis.call('EXISTS', key)
local previous = ARGV[4] == '1' and redis.call('ZSCORE', key, ARGV[6])

-- Times too far ahead are replaced by the time of this Redis, whatever the caller's clock shows.
local now = clock()
local replaced = tonumber(ARGV[2]) > now + max_ahead
if replaced then
  local limit = (now + max_ahead) / ARGV[3]
  now = now / ARGV[3]
  for i = 5, #ARGV, 2 do
    if tonumber(ARGV[i]) > limit then
      ARGV[i] = now
    end
  end
  if tonumber(ARGV[1]) < -now then
    ARGV[1] = -now
  end
end

-- If no user has left at or after these pings, GT alone suffices: it keeps the later time, and scores beyond any time. If
-- it changed every user, their scores are known.
local all = redis.call('ZCOUNT', key, '-inf', ARGV[1]) == 0
if all and redis.call('ZADD', key, 'GT', 'CH', unpack(ARGV, 5)) == count and not replaced then
  return previous and {created, false, previous} or {created}
end

local users = {}
for i = 6, #ARGV, 2 do
  users[#users + 1] = ARGV[i]
end

-- A user who left at or after their ping stays left.
if not all then
  local add, scores = {}, redis.call('ZMSCORE', key, unpack(users))
  for i = 1, #users do
    local score, at = scores[i], ARGV[2 * i + 3]
    if not score or -tonumber(score) < tonumber(at) then
      add[#add + 1] = at
      add[#add + 1] = users[i]
    end
  end
  if #add > 0 then
    redis.call('ZADD', key, 'GT', unpack(add))
  end
end
return {created, redis.call('ZMSCORE', key, unpack(users)), previous}
