-- Moves the watermark of a feed, and appends the users who turned yellow or grey, or whose availability or call ended,
-- up to there.
--
-- KEYS     see feed.lua and details.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  the caller
-- ARGV[3]  the caller's green threshold, in milliseconds
-- ARGV[4]  the caller's yellow threshold
-- ARGV[5]  where to move the watermark
--
-- Returns {result, watermark, turned, lag, begun, more}. result is 0; 1 if another server moves the watermark; 2 if the
-- watermark would be too far ahead, and then the watermark is the time. turned is the number of users appended. lag is
-- how many milliseconds ago the first of them changed. begun is 1 if the feed restarted. more is 1 if there are more
-- such users. Returns {} if there is no feed.

local caller, goal = ARGV[2], tonumber(ARGV[5])
local now = clock()
if goal > now + max_ahead then
  return {2, now, 0, 0, 0, 0}
end
local begun = load_feed(now)
if not feed then
  settle()
  return {}
end
local owner = redis.call('HGET', feed_key, 'o')

local function reply(result, turned, lag, more)
  return {result, feed.watermark, turned, lag, (begun or refused) and 1 or 0, more and 1 or 0}
end

local function start_over(watermark)
  restart(watermark)
  begun = true
end

-- The server that last moved the watermark continues. A feed with other thresholds restarts once no server with them is
-- left.
if feed.green ~= tonumber(ARGV[3]) or feed.yellow ~= tonumber(ARGV[4]) then
  if feed.watermark >= now - advance_takeover_others then
    return reply(1, 0, 0)
  end
  feed.green, feed.yellow = tonumber(ARGV[3]), tonumber(ARGV[4])
  redis.call('HSET', feed_key, 'g', ARGV[3], 'y', ARGV[4])
  start_over(now)
elseif owner and owner ~= caller and feed.watermark > now - advance_takeover then
  return reply(1, 0, 0)
end
if owner ~= caller then
  redis.call('HSET', feed_key, 'o', caller)
end

-- A range of times: those after one instant, up to and including another.
local function bounds(after, upto)
  return '(' .. digits(math.max(0, after)), digits(math.max(0, upto))
end

-- The times of the users who turn grey by a watermark, and of those who only turn yellow.
local function turning_ranges(watermark)
  local from, to = feed.watermark, watermark
  return from - feed.yellow, to - feed.yellow, math.max(from - feed.green, to - feed.yellow), to - feed.green
end

local function count(watermark)
  local a, b, c, d = turning_ranges(watermark)
  return redis.call('ZCOUNT', KEYS[1], bounds(a, b)) + redis.call('ZCOUNT', KEYS[1], bounds(c, d))
end

-- The number of users whose availability or call ends by a watermark.
local function count_ends(watermark)
  return ends_key and redis.call('ZCOUNT', ends_key, bounds(feed.watermark, watermark)) or 0
end

-- Reports whether more users change by a watermark than one call appends.
local function exceeds(watermark)
  return count(watermark) > max_advance or count_ends(watermark) > max_ends
end

-- The last instant up to which few enough users change, or the next one.
local function step(past)
  local low, high = feed.watermark, past
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if exceeds(middle) then
      high = middle
    else
      low = middle
    end
  end
  return low > feed.watermark and low or high
end

local function members(key, after, upto)
  local min, max = bounds(after, upto)
  return redis.call('ZRANGE', key, min, max, 'BYSCORE', 'WITHSCORES')
end

-- The time of a score as text: 0 for an unknown user.
local function time_of(score)
  local size = math.abs(score)
  return size >= 1 and size < latest_time + 1 and digits(math.floor(size)) or '0'
end

-- Reads users, and what is published of each: {time, text of the details, status, published details}. max_args is as
-- many of them as Lua can pass to one command.
local max_args = 4000
local function read_users(names)
  local users = {}
  for first = 1, #names, max_args do
    local last = math.min(#names, first + max_args - 1)
    local scores = redis.call('ZMSCORE', KEYS[1], unpack(names, first, last))
    local texts = redis.call('HMGET', details_key, unpack(names, first, last))
    for i, score in ipairs(scores) do
      score = tonumber(score or 0)
      local user = {time = time_of(score), text = texts[i], status = published(score)}
      user.details = published_details(user.text, user.status, feed.watermark)
      users[names[first + i - 1]] = user
    end
  end
  return users
end

-- Reads the users of lists of members; nil without details.
local function users_of(lists)
  if not details_key then
    return nil
  end
  local names = {}
  for _, list in ipairs(lists) do
    for i = 1, #list.members, 2 do
      names[#names + 1] = list.members[i]
    end
  end
  return read_users(names)
end

-- Appends that a user has another status, or that the availability or call ends; nil for the status if it stays.
-- Reports whether that is a change.
local function pass(name, user, status, instant)
  local was, described = user.status, user.details
  user.status = status or was
  user.details = published_details(user.text, user.status, instant)
  if user.details ~= described or differs(was, user.status) then
    append(name, was, user.status, user.time, described, user.details)
    return true
  end
end

-- Returns the users of a list of ends whose details end in part once more by a watermark, in the same form. Those whose
-- details end later get a new score among the ends.
local function further_ends(list, users, watermark)
  local found, further = {}, {}
  for i = 1, #list, 2 do
    local details = parse_details(users[list[i]].text)
    local instant = details and next_end(details, tonumber(list[i + 1]))
    if instant and instant <= watermark then
      found[#found + 1] = {list[i], instant}
    elseif instant then
      redis.call('ZADD', ends_key, digits(instant), list[i])
    end
  end
  table.sort(found, function(a, b) return a[2] < b[2] end)
  for _, pair in ipairs(found) do
    further[#further + 1] = pair[1]
    further[#further + 1] = pair[2]
  end
  return further
end

-- Appends the users who turn yellow or grey by a watermark, in the order of the instants at which they reach their new
-- status, and those whose availability or call ends. A user with both at one instant is appended once. Returns how many
-- were appended, and the instant at which the first one changed.
local function append_turned(watermark)
  local a, b, c, d = turning_ranges(watermark)
  local lists = {
    {members = members(KEYS[1], a, b), after = feed.yellow, next = 1, status = grey},
    {members = members(KEYS[1], c, d), after = feed.green, next = 1, status = yellow},
    {members = ends_key and members(ends_key, feed.watermark, watermark) or {}, after = 0, next = 1},
  }
  local users = users_of(lists)
  lists[4] = {members = users and further_ends(lists[3].members, users, watermark) or {}, after = 0, next = 1}
  local function instant(list)
    local time = list.members[list.next + 1]
    return time and tonumber(time) + list.after or math.huge
  end
  local first, turned = now, 0
  while true do
    local list = lists[1]
    for i = 2, 4 do
      list = instant(lists[i]) < instant(list) and lists[i] or list
    end
    local name, time = list.members[list.next], list.members[list.next + 1]
    if not name then
      return turned, first
    end
    local at, was = instant(list), list.status and published(tonumber(time))
    list.next = list.next + 2
    local changed
    if users then
      changed = pass(name, users[name], list.status, at)
    elseif differs(was, list.status) then
      append(name, was, list.status, time)
      changed = true
    end
    if changed then
      first = math.min(first, was == green and tonumber(time) + feed.green or at)
      turned = turned + 1
    end
  end
end

local past = math.min(goal, now)
goal = math.min(goal, furthest(now))
local turned, first, target = 0, now, goal
if goal > feed.watermark then
  local too_many = count(goal) + count_ends(goal) > max_changes
  if not too_many and exceeds(goal) then
    target = step(goal)
    too_many = target == feed.watermark + 1 and count(target) + count_ends(target) > max_advance_instant
  end
  if too_many then
    start_over(math.max(now, target)) -- otherwise they would be appended again until the clock has passed that instant
  else
    turned, first = append_turned(target)
    save_tip()
    feed.watermark = target
    local user = redis.call('ZRANGE', KEYS[1], latest_time, feed.time, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
    local newest = user[1] and digits(math.floor(user[2])) .. ' ' .. user[1] or feed.newest
    redis.call('HSET', feed_key, 'w', digits(target), 'n', newest)
  end
end
if delete_ended(math.min(past, feed.watermark), max_ends) then
  settle()
end
redis.call('XTRIM', changes_key, 'MINID', '~', digits(math.max(0, now - changes_kept)))
return reply(0, turned, now - first, not begun and feed.watermark < goal)
