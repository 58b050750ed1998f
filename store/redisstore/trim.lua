-- Erases members last seen before a cutoff, whether present, left or hidden, at most so many.
--
-- KEYS[1]  one shard of a namespace
-- ARGV[1]  the cutoff c
-- ARGV[2]  how many to erase at most
-- ARGV[3]  the lowest score of the hidden band
-- ARGV[4]  the lowest score that has been hidden since c or later
--
-- Returns how many were erased.
--
-- Scores between -c and c, both excluded, are older than c: one run of ranks. Hidden members are
-- another run. Erasing by rank bounds the time one call can take.

local key, cutoff, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])

-- Erases at most `most` members whose scores lie between the two counts' bounds.
local function erase(first, past, most)
  local last = math.min(past, first + most) - 1
  if last < first then
    return 0
  end
  return redis.call('ZREMRANGEBYRANK', key, first, last)
end

local erased = erase(
  redis.call('ZCOUNT', key, '-inf', '-' .. cutoff),
  redis.call('ZCOUNT', key, '-inf', '(' .. cutoff),
  limit)
erased = erased + erase(
  redis.call('ZCOUNT', key, '-inf', '(' .. ARGV[3]),
  redis.call('ZCOUNT', key, '-inf', '(' .. ARGV[4]),
  limit - erased)
return erased
