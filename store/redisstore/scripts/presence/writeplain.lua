-- Records that users were seen, or left.
--
-- KEYS[1]  one shard of a namespace without a feed, and for leaves without devices
-- ARGV[1]  the latest of the times that follow, in milliseconds
-- ARGV[2]  1 for users who left
-- ARGV[3]  1 to return the previous score of the first user
-- ARGV[4]  how many milliseconds a score of 1 is: 1 or 1000
-- ARGV[5]  the earliest of the times, mirrored at zero
-- ARGV     then time, user, time, user, …: each user once, at most 512 of them
--
-- Returns {created, scores, previous}: created is 1 if the key did not exist before. If scores is nil, every user now has
-- the state that came with them; otherwise scores are theirs afterwards, in order, nil for those unknown. previous is the
-- score of the first user before, nil if the user was unknown or it was not asked for. Both can be missing.
--
-- Times stay the strings of ARGV, or numbers that are only compared or passed to Redis: Lua formats a number with 14
-- digits, which would round it.

local key, leaving, unit, count = KEYS[1], ARGV[2] == '1', tonumber(ARGV[4]), (#ARGV - 5) / 2
local created = 1 - redis.call('EXISTS', key)
local previous = ARGV[3] == '1' and redis.call('ZSCORE', key, ARGV[7])

-- Times too far ahead are replaced by the time of this Redis, whatever the caller's clock shows.
local now = clock()
local replaced = tonumber(ARGV[1]) > now + max_ahead
if replaced then
  local limit = (now + max_ahead) / unit
  now = now / unit
  for i = 6, #ARGV, 2 do
    if tonumber(ARGV[i]) > limit then
      ARGV[i] = now
    end
  end
  if tonumber(ARGV[5]) < -now then
    ARGV[5] = -now
  end
end

-- If no user has left at or after these pings, GT alone suffices: it keeps the later time, and scores beyond any time. If
-- it changed every user, their scores are known.
local all = not leaving and redis.call('ZCOUNT', key, '-inf', ARGV[5]) == 0
if all and redis.call('ZADD', key, 'GT', 'CH', unpack(ARGV, 6)) == count and not replaced then
  return previous and {created, false, previous} or {created}
end

local users = {}
for i = 7, #ARGV, 2 do
  users[#users + 1] = ARGV[i]
end

-- Reports whether a user with this score was seen after the millisecond of a time, in which other programs may have
-- written the score.
local function is_later(score, at)
  return score >= (math.floor(at * unit + 0.5) + 1) / unit
end

-- A user who left at or after their ping or leave stays as they are, and so does one who is seen after they left.
if not all then
  local add, scores = {}, redis.call('ZMSCORE', key, unpack(users))
  for i = 1, #users do
    local time, score = ARGV[2 * i + 4], scores[i] and tonumber(scores[i])
    local at = tonumber(time)
    if not score or score > -at and not (leaving and is_later(score, at)) then
      add[#add + 1] = not leaving and time or type(time) == 'number' and -time or '-' .. time
      add[#add + 1] = users[i]
    end
  end
  if #add > 0 then
    redis.call('ZADD', key, leaving and 'CH' or 'GT', unpack(add))
  end
  if leaving and #add == 2 * count and not replaced then
    return {created}
  end
end
return {created, redis.call('ZMSCORE', key, unpack(users)), previous}
