-- Moves the watermark of a feed, and appends the users whose status decays on the way.
--
-- KEYS     see feed.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  the caller
-- ARGV[3]  the caller's green threshold, in milliseconds
-- ARGV[4]  the caller's yellow threshold
-- ARGV[5]  where to move the watermark
-- ARGV[6]  how long a server may not know of a feed, in milliseconds
--
-- Returns {result, watermark, decays, lag, begun, more}. result is 0; 1 if another server sweeps; 2 if the watermark
-- would be too far ahead, and then the watermark is the time. lag is how many milliseconds ago the first user decayed.
-- begun is 1 if the feed restarted. more is 1 if more users decay. Returns {} if there is no feed.

local caller, goal, window = ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[6])
local now = clock()
if goal > now + max_ahead then
  return {2, now, 0, 0, 0, 0}
end
local begun = load_feed(now)
if not feed then
  return {}
end
local owner = redis.call('HGET', feed_key, 'o')

local function reply(result, decays, lag, more)
  return {result, feed.watermark, decays, lag, (begun or refused) and 1 or 0, more and 1 or 0}
end

local function start_over(watermark)
  restart(watermark)
  begun = true
end

-- The server that swept last goes on. A feed with other thresholds restarts once no server with them is left.
if feed.green ~= tonumber(ARGV[3]) or feed.yellow ~= tonumber(ARGV[4]) then
  if feed.watermark >= now - sweep_takeover_others then
    return reply(1, 0, 0)
  end
  feed.green, feed.yellow = tonumber(ARGV[3]), tonumber(ARGV[4])
  redis.call('HSET', feed_key, 'g', ARGV[3], 'y', ARGV[4])
  start_over(now)
elseif owner and owner ~= caller and feed.watermark > now - sweep_takeover then
  return reply(1, 0, 0)
end
if owner ~= caller then
  redis.call('HSET', feed_key, 'o', caller)
end

-- Until then servers that did not know of the feed may have written without appending. The time counts only while the
-- clock and the sweeps go on steadily. In a Cluster the callers' clock may be behind this one, and so the watermark.
-- Callers may differ in their windows: it is the longest that counts, but no clock can put it off for long.
local settled = redis.call('HGET', feed_key, 's')
if settled then
  settled = tonumber(settled)
  local at = math.min(goal, now)
  if settled > now + changes_kept or feed.watermark < at - sweep_takeover then
    redis.call('HSET', feed_key, 's', digits(now + window))
  elseif settled <= at then
    redis.call('HDEL', feed_key, 's')
    start_over(now)
  end
end

-- A range of times: those after one instant, up to and including another.
local function bounds(after, upto)
  return '(' .. digits(math.max(0, after)), digits(math.max(0, upto))
end

-- The times of the users who pass both thresholds or the yellow one on the way to a watermark, and of those who pass
-- the green one alone.
local function decaying(watermark)
  local from, to = feed.watermark, watermark
  return from - feed.yellow, to - feed.yellow, math.max(from - feed.green, to - feed.yellow), to - feed.green
end

local function count(watermark)
  local a, b, c, d = decaying(watermark)
  return redis.call('ZCOUNT', KEYS[1], bounds(a, b)) + redis.call('ZCOUNT', KEYS[1], bounds(c, d))
end

-- The last instant up to which few enough users decay, or the next one.
local function step(past)
  local low, high = feed.watermark, past
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if count(middle) > max_sweep then
      high = middle
    else
      low = middle
    end
  end
  return low > feed.watermark and low or high
end

local function members(after, upto)
  local min, max = bounds(after, upto)
  return redis.call('ZRANGE', KEYS[1], min, max, 'BYSCORE', 'WITHSCORES')
end

-- Appends the users who decay on the way to a watermark, in the order of the instants at which they reach their new
-- status. Returns how many they are, and the instant at which the first one began to decay.
local function decay(watermark)
  local a, b, c, d = decaying(watermark)
  local lists = {
    {members = members(a, b), after = feed.yellow, next = 1, status = grey},
    {members = members(c, d), after = feed.green, next = 1, status = yellow},
  }
  local function instant(list)
    local time = list.members[list.next + 1]
    return time and tonumber(time) + list.after or math.huge
  end
  local first, decays = now, 0
  while true do
    local list = instant(lists[1]) <= instant(lists[2]) and lists[1] or lists[2]
    local user, time = list.members[list.next], list.members[list.next + 1]
    if not user then
      return decays, first
    end
    list.next = list.next + 2
    local was = published(tonumber(time))
    if differs(was, list.status) then
      first = math.min(first, tonumber(time) + (was == green and feed.green or feed.yellow))
      append(user, was, list.status, time)
      decays = decays + 1
    end
  end
end

goal = math.min(goal, furthest(now))
local decays, first, target = 0, now, goal
if goal > feed.watermark then
  local n = count(goal)
  local too_many = n > max_changes
  if n > max_sweep and not too_many then
    target = step(goal)
    too_many = target == feed.watermark + 1 and count(target) > max_sweep_instant
  end
  if too_many then
    start_over(math.max(now, target)) -- otherwise they would decay again until the clock has passed that instant
  else
    decays, first = decay(target)
    save_tip()
    feed.watermark = target
    redis.call('HSET', feed_key, 'w', digits(target))
  end
end
redis.call('XTRIM', changes_key, 'MINID', '~', digits(math.max(0, now - changes_kept)))
return reply(0, decays, now - first, not begun and feed.watermark < goal)
