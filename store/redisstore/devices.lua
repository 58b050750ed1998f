-- Records what devices asserted, and that users left on all devices. The rule is that of Devices of package lastseen,
-- whose methods Assert and Leave this follows step by step.
--
-- KEYS     see feed.lua and records.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  the latest of the times that follow, in milliseconds
-- ARGV[3]  for how long a device counts that has not said goodbye, in milliseconds
-- ARGV     then items, at most 256 of them, of 6 arguments: 'ping' or 'bye' of a device, or 'all' for a leave on all
--          devices; time; user; what the record's line begins with, without newline and kind if
--          that stays as it is; since when it is idle, or 0; its meta, or ''. Those
--          after the user are '' for a leave.
--
-- Returns {created, scores, previous, missing, unreadable}: created and scores are those of ping.lua, a score for each
-- item; previous is nil; missing is 1 if there is no feed; unreadable is a user whose records another program wrote, if
-- there is one. Those count as none.

local key, now, window = KEYS[1], clock(), tonumber(ARGV[3])
load_feed(now)

-- Times too far ahead are replaced by the time of this Redis, whatever the caller's clock shows.
local bound = now + max_ahead
local replaced = tonumber(ARGV[2]) > bound

-- Users, in the order in which they are named first: the place of each in the order, and who is named twice.
local names, places, repeated = {}, {}, {}
for i = 6, #ARGV, 6 do
  local name = ARGV[i]
  if places[name] then
    repeated[name] = true
  else
    names[#names + 1] = name
    places[name] = #names
  end
end
local scores = redis.call('ZMSCORE', key, unpack(names))
local texts = redis.call('HMGET', records_key, unpack(names))

-- Whether a user was known before, and a user whose records another program wrote.
local known, unreadable = false, nil

-- What is written: states, records, metas, and entries of the feed.
local add, set, delete, set_metas, delete_metas, changes = {}, {}, {}, {}, {}, {}

-- Records a ping of a device that moves times alone, and reports whether it is one: the user is present, and published
-- as green if there is a feed, and the device is known. Nearly every item is like this. The rest is in devicesrule.lua and
-- devicessave.lua, which follow.
local lowest = math.max(1, feed and feed.watermark - feed.green or 0)
local header = ARGV[3] .. ' 0'
local function refresh(i, place)
  local score, text, time = tonumber(scores[place] or 0), texts[place], ARGV[i + 1]
  local at = tonumber(time)
  if ARGV[i] ~= 'ping' or ARGV[i + 5] ~= '' or not text or score <= lowest or score >= at then
    return false
  end
  local head = ARGV[i + 3]
  local first, last = string.find(text, head, 1, true)
  if first and string.byte(head) == 32 then
    local kind = string.match(string.sub(text, 1, first - 1), '\n(%a+)$')
    if not kind then
      return false
    end
    head, first = '\n' .. kind .. head, first - #kind - 1
  end
  if not first or #text > max_text or string.sub(text, 1, #header + 1) ~= header .. '\n' then
    return false
  end
  local was, since, was_idle, past = string.match(text, '^(%d+) 0 (%d+) (%d+)()', last + 1)
  local idle = ARGV[i + 4]
  if not was or tonumber(was) >= at or idle ~= '0' and idle ~= was_idle then
    return false
  end
  local others = ''
  if past <= #text or first > #header + 1 then
    others = string.sub(text, #header + 1, first - 1) .. string.sub(text, past)
    local newest, oldest = string.match(others, '\t(%d+)'), string.match(others, '^.*\t(%d+)')
    if not newest or tonumber(newest) >= at or tonumber(oldest) < at - window then
      return false
    end
  end
  set[#set + 1] = ARGV[i + 2]
  set[#set + 1] = header .. head .. time .. ' 0 ' .. since .. ' ' .. idle .. others
  add[#add + 1] = time
  add[#add + 1] = ARGV[i + 2]
  scores[place], known = time, true
  return true
end

