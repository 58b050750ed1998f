-- What the scripts of a changes feed share; it is prepended to each, after the limits of package store and clock.lua.
--
-- KEYS[1]      one shard of a namespace
-- feed_key     its feed: w is the watermark; g and y are the thresholds; i and l are the ID and the link of the last
--              entry; o is the server that last moved the watermark; n is the newest time known of a user, and the user
-- changes_key  its entries; nil if the script appends none
-- ARGV[1]      a random number that the links of this call follow
--
-- Every entry has its own link and that of the entry before it, so a reader notices when entries are missing.
-- Scores and times stay strings, or numbers that are written with all their digits: see writeplain.lua.

local links, latest_time = tonumber(ARGV[1]), 253402300799999

-- What is published about a user, as a number.
local unknown, grey, yellow, green, left = 0, 1, 2, 3, 4

local function digits(number)
  return string.format('%.0f', number)
end

local function next_link()
  links = links + 1
  return digits(links)
end

-- The feed: nil if there is none.
local feed

-- How far the watermark may be ahead of the clock.
local function furthest(now)
  return now + math.min(max_ahead, math.floor(feed.green / 2))
end

-- Has the entries expire with the feed, so that a server that crashes leaves nothing behind.
local function expire_entries()
  local rest = redis.call('PTTL', feed_key)
  if rest > 0 then
    redis.call('PEXPIRE', changes_key, rest)
  end
end

-- Deletes all entries. Readers do not find the link that they continue from any more.
local function restart(now)
  claim()
  redis.call('UNLINK', changes_key)
  redis.call('XADD', changes_key, 'MAXLEN', '0', '*', 'e', '') -- while a feed exists, so does the key of its entries
  expire_entries()
  feed.watermark, feed.id, feed.link, feed.newest, feed.time = now, '0-0', next_link(), '', 0
  redis.call('HSET', feed_key, 'w', digits(now), 'i', feed.id, 'l', feed.link, 'n', '')
end

-- Reads the feed, and reports whether it restarted because Redis lost the users alone, or has older ones, or because
-- its watermark is too far ahead of the clock. Then the clock was set back, and the feed would also exist for that much
-- longer.
local function load_feed(now)
  local fields = feed_key and redis.call('HMGET', feed_key, 'w', 'g', 'y', 'l', 'n')
  if not fields or not fields[1] then
    return false
  end
  feed = {
    watermark = tonumber(fields[1]), green = tonumber(fields[2]), yellow = tonumber(fields[3]), link = fields[4],
    newest = fields[5] or '',
  }
  local time, user = string.match(feed.newest, '^(%d+) (.*)$')
  feed.time = tonumber(time or 0)
  if feed.watermark <= furthest(now) then
    local lost = user and math.abs(redis.call('ZSCORE', KEYS[1], user) or 0) < feed.time
    if lost then
      restart(feed.watermark)
    end
    return lost
  end
  if redis.call('PTTL', feed_key) > changes_kept then
    redis.call('PEXPIRE', feed_key, changes_kept)
  end
  restart(now)
  return true
end

-- What is published at the watermark about a user with this score: a number, or nil for an unknown user.
local function published(score)
  local time = score or 0
  local size = math.abs(time)
  if size < 1 or size >= latest_time + 1 then
    return unknown
  elseif time < 0 then
    return left
  end
  local age = feed.watermark - time
  return age < feed.green and green or age < feed.yellow and yellow or grey
end

-- Reports whether readers see a difference.
local function differs(before, after)
  return math.max(before, grey) ~= math.max(after, grey)
end

-- Appends an entry: its link, the link of the entry before unless it is one less, what was published before and is now,
-- the time of the user, and the user, in one value. Each argument that passes from Lua to Redis costs more than the
-- entry itself.
--
-- was and is are the details that were published before and are now: see published_details in details.lua. If there are
-- any, the third value is greater by 64, and before the user are the lengths of both and then both, without a space.
--
-- The tip is kept in memory: see save_tip. Redis may have lost the key of entries alone. If Redis refuses an entry, as
-- it would the first one of a call, its user is recorded all the same, and the feed restarts, so that no reader misses
-- it.
local has_entries, appended, refused
local function append(user, before, after, time, was, is)
  if refused then
    return
  end
  if tonumber(time) >= feed.time then
    feed.time, feed.newest = tonumber(time), time .. ' ' .. user
  end
  local code = 8 * before + after
  if was and (was ~= '' or is ~= '') then
    code, user = code + 64, #was .. ' ' .. #is .. ' ' .. was .. is .. user
  end
  has_entries = has_entries or redis.call('EXISTS', changes_key) == 1
  if not has_entries then
    claim()
  end
  local link = next_link()
  local previous = appended and '' or feed.link
  local entry = link .. ' ' .. previous .. ' ' .. code .. ' ' .. time .. ' ' .. user
  local id = (appended and redis.call or redis.pcall)('XADD', changes_key, '*', 'e', entry)
  if type(id) == 'table' then
    refused = true
    restart(feed.watermark)
    return
  end
  appended, feed.id, feed.link = true, id, link
  if not has_entries then
    expire_entries()
    has_entries = true
  end
end

-- Appends that the contacts of a user changed. The entry has nothing else.
local function append_contacts(owner)
  if feed then
    append(owner, 16, unknown, '0')
  end
end

-- Writes which entry is the last one, if entries were appended, and deletes the oldest if there are too many.
local function save_tip()
  if appended then
    redis.call('HSET', feed_key, 'i', feed.id, 'l', feed.link, 'n', feed.newest)
    redis.call('XTRIM', changes_key, 'MAXLEN', '~', digits(max_changes))
  end
end

