-- Reads the next members of one half (present or left) of one millisecond, ordered by name, from a position on. It
-- changes nothing.
--
-- KEYS[1]  a sorted set that other programs write, too: a millisecond may have several scores
-- ARGV[1]  limit
-- ARGV[2]  direction, 'up' or 'down' the names
-- ARGV[3]  min of the scores
-- ARGV[4]  max of the scores
-- ARGV[5]  a member, or nothing: skip members up to and including it, whether or not it still exists
--
-- Returns {member, …}, at most limit of them, always in ascending order: if the direction is down, they are the last
-- ones.
--
-- If all members have the same score, as with whole seconds, they are read by rank, which costs as much as any page.
-- Otherwise the whole millisecond is read and sorted.

local limit, direction, after = tonumber(ARGV[1]), ARGV[2], ARGV[5]
local low, high = ranks(ARGV[3], ARGV[4])
if low == high then
  return {}
end

local function score_at(rank)
  return redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]
end

local at, slice
if score_at(low) == score_at(high - 1) then
  at = member_at
  slice = function(first, last) return redis.call('ZRANGE', key, first, last) end
else
  local members = redis.call('ZRANGE', key, low, high - 1)
  table.sort(members, before)
  low, high = 1, #members + 1
  at = function(position) return members[position] end
  slice = function(first, last) return {unpack(members, first, last)} end
end

if after then
  local position = after_member(after, low, high, at)
  if direction == 'up' then
    low = position
  else
    high = (position > low and at(position - 1) == after) and position - 1 or position
  end
end
low, high = next_ranks(low, high, direction, limit)
if low >= high then
  return {}
end
return slice(low, high - 1)
