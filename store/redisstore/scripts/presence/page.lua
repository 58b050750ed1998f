-- Reads the next members of score ranges, in one direction each, from a position on. It changes nothing.
--
-- KEYS[1]  one shard of a namespace
-- ARGV     limit, then for each range: direction ('up' or 'down' the scores), min, max, after.
--          after is '' or a member: then, among the members that share the score where the reading
--          starts (min going up, max going down), skip those up to and including it, whether or not
--          it is still there.
--
-- Returns, for each range, {member, score, member, score, …}, at most limit members, always in ascending order of
-- score: if the direction is down, they are the last ones of the range.
--
-- All ranges are read at one moment, so no member is in two of them. Positions are found by rank, so a deep page costs
-- as much as the first one.

-- The rank at which the members with one score continue after the given member. If it still exists, its own rank saves
-- the search; then the second result is true.
local function skip(member, score)
  local low, high = ranks(score, score)
  local now = redis.call('ZSCORE', key, member)
  if now and tonumber(now) == tonumber(score) then
    return redis.call('ZRANK', key, member), true
  end
  return after_member(member, low, high, member_at), false
end

local function read(limit, direction, min, max, after)
  local low, high = ranks(min, max)
  if after ~= '' then
    local rank, there = skip(after, direction == 'up' and min or max)
    if direction == 'down' then
      high = rank
    elseif there then
      low = rank + 1
    else
      low = rank
    end
  end
  low, high = next_ranks(low, high, direction, limit)
  if low >= high then
    return {}
  end
  return redis.call('ZRANGE', key, low, high - 1, 'WITHSCORES')
end

local pages = {}
for i = 2, #ARGV, 4 do
  pages[#pages + 1] = read(tonumber(ARGV[1]), ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
return pages
