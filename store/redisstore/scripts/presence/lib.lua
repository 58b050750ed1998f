-- What page.lua and millisecond.lua share; it is prepended to each, after bytes.lua.

local key = KEYS[1]

-- The ranks of a range of scores: the first, and the one past the last. A bound that begins with a
-- parenthesis is excluded.
local function ranks(min, max)
  local below = string.sub(min, 1, 1) == '(' and string.sub(min, 2) or '(' .. min
  return redis.call('ZCOUNT', key, '-inf', below), redis.call('ZCOUNT', key, '-inf', max)
end

-- The member at a rank.
local function member_at(rank)
  return redis.call('ZRANGE', key, rank, rank)[1]
end

-- The part of [low, high) that is read next: at most limit ranks, from the low end if the direction is up, otherwise
-- from the high end. It is empty if the first result is not less than the second.
local function next_ranks(low, high, direction, limit)
  if direction == 'up' then
    return low, math.min(high, low + limit)
  end
  return math.max(low, high - limit), high
end

-- The first position in [low, high) whose member, returned by `at`, comes after the given one; high if there is none.
-- The members there must be in bytewise order, like those that share one score.
local function after_member(member, low, high, at)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if before(member, at(middle)) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

