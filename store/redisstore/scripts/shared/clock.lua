-- What scripts share that compare times with the clock of this Redis; it is prepended to each.

-- How far ahead of this Redis a time may be, in milliseconds: MaxAhead of package store.
local max_ahead = 5000

-- The time by the clock of this Redis, in milliseconds.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

