-- Records what devices asserted, and that users left on all devices. The rule is that of Devices of package lastseen,
-- whose methods Assert and Leave this follows step by step.
--
-- KEYS     see feed.lua, records.lua and details.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  the latest of the times that follow, in milliseconds
-- ARGV[3]  for how long a device counts that has not left, in milliseconds
-- ARGV[4]  how many items follow
-- ARGV     then items, of 3 arguments: time; user; its report about the record, in the form of its line, without
--          the times at the end. For a ping the first line comes before that, with the window and 0. For a leave only
--          the newline does, and if the kind stays as it is the text begins after it. '' is a leave on all devices.
-- ARGV     then metas, of 2 arguments: number of the item; meta. Each argument costs, and most items have none.
--
-- Returns {created, scores, previous, missing, unreadable}: created and scores are those of writeplain.lua, a score for each
-- item; previous is nil; missing is 1 if there is no feed; unreadable is a user whose records another program wrote, if
-- there is one. Those count as none. Or 'NEED d': it has to be called again with the key of details, and wrote nothing
-- but the feed.

local key, now, window = KEYS[1], clock(), tonumber(ARGV[3])
load_feed(now)

-- Times too far ahead are replaced by the time of this Redis, whatever the caller's clock shows.
local bound = now + max_ahead
local replaced = tonumber(ARGV[2]) > bound

local find, match, sub = string.find, string.match, string.sub
local past_items = 5 + 3 * tonumber(ARGV[4])

-- The meta of an item, by its index in ARGV.
local metas = {}
for i = past_items, #ARGV, 2 do
  metas[2 + 3 * tonumber(ARGV[i])] = ARGV[i + 1]
end

-- Users, in the order in which they are named first: the index of each in the order, and who is named twice.
local names, indexes, repeated, users = {}, {}, {}, 0
for i = 6, past_items, 3 do
  local name = ARGV[i]
  if indexes[name] then
    repeated[name] = true
  else
    users = users + 1
    names[users], indexes[name] = name, users
  end
end
local scores = redis.call('ZMSCORE', key, unpack(names))
local texts = redis.call('HMGET', records_key, unpack(names))
local details = details_key and redis.call('HMGET', details_key, unpack(names)) or {}

-- Whether a user was known before, and a user whose records another program wrote.
local known, unreadable = false, nil
local needs_details = false

-- What is written: states, records, metas, details, and entries of the feed.
local add, set, delete, set_metas, delete_metas, set_details, changes = {}, {}, {}, {}, {}, {}, {}

-- Notes an entry of the feed, if readers see a difference.
local function note_change(user, was, is, time, text, new_text)
  local before = details_key and published_details(text, was, feed.watermark) or ''
  local after = details_key and published_details(new_text, is, feed.watermark) or ''
  if before ~= after or was ~= is and differs(was, is) then
    changes[#changes + 1] = {user, was, is, time, before, after}
  end
end

-- Nearly every item is a ping of a device that moves times alone: the user is present, and published as green if there
-- is a feed; and the device has a record that is not too old, and is the last one of the user to be active. Many users
-- leave on all devices. These functions record such items. The rest is in devicesrule.lua and devicessave.lua, which
-- follow.
local header = ARGV[3] .. ' 0'
local body = #header + 1

-- Returns the time before an index in a text, as a number; nil if it does not have that many digits.
local function time_before(text, index, count)
  return tonumber(sub(text, index - count - 1, index - 1))
end

-- Returns the records with another time of one of several; nil if more has to be changed. line is that of the record, up
-- to the times.
local function move_up(text, line, time, at)
  local first, last = find(text, line, body, true)
  if not first or sub(text, 1, #header) ~= header then
    return nil
  end
  local count, past = #time, find(text, '\n', last, true) or #text + 1
  local newest = time_before(text, find(text, '\n', body + 1, true) or #text + 1, count)
  local was = past == last + 2 * count + 2 and time_before(text, past, count)
  if not was or not newest or newest >= at or was < newest - window then
    return nil
  end
  return header .. sub(text, first, past - count - 1) .. time .. sub(text, body, first - 1) .. sub(text, past)
end

-- The same with the report of an item.
local function move(text, report, time, at)
  local start = string.byte(report)
  if start == 10 then -- a leave
    return nil
  elseif start ~= 32 then
    return move_up(text, sub(report, body), time, at)
  end
  local first = find(text, report, body, true)
  local kind = first and match(sub(text, body, first - 1), '\n%a+$')
  return kind and move_up(text, kind .. report, time, at)
end

-- Returns the records after a leave on all devices that is not older than any; nil if it may be.
local function leave_all(text, time, at)
  if not text then
    return '0 ' .. time
  end
  local window, past = match(text, '^(%d+) %d+()')
  if not window or #text > max_text then
    return nil
  end
  local newest = 0
  if past <= #text then
    newest = time_before(text, find(text, '\n', past + 1, true) or #text + 1, #time)
  end
  return newest and newest <= at and window .. ' ' .. time .. sub(text, past)
end

local lowest = math.max(1, feed and feed.watermark - feed.green or 0)
local recorded = 0

-- Notes what is to be written about a user.
local function note(user, index, score, text)
  recorded = recorded + 2
  add[recorded - 1], add[recorded] = score, user
  set[recorded - 1], set[recorded] = user, text
  scores[index] = score
  return true
end

-- Reports whether an item changes nothing about since when the user is idle: neither the user nor the device is.
local function is_used(index, report)
  local text = details[index]
  return (not text or string.byte(text) == 48) and (report == '' or sub(report, -3) == ' 0 ')
end

-- Records a ping that moves times alone, and reports whether it is one.
local function refresh(i, user, index)
  local text, score = texts[index], tonumber(scores[index] or 0)
  if not text or score <= lowest or #text > max_text then
    return false
  end
  local time, report = ARGV[i], ARGV[i + 2]
  local at, count, size = tonumber(time), #time, #report
  if score >= at then
    return false
  end
  if #text == size + 2 * count + 1 and string.byte(text, -count - 1) == 32 and sub(text, 1, size) == report then
    text = report .. sub(text, size + 1, size + count + 1) .. time -- the only record of the user
  else
    text = move(text, report, time, at)
  end
  known = true
  return text and note(user, index, time, text)
end

-- Records a leave on all devices that is newer than anything else about the user, and reports whether it is one.
local function leave(i, user, index)
  local text, score = texts[index], tonumber(scores[index] or 0)
  local time, size = ARGV[i], math.abs(score)
  local at = tonumber(time)
  if score == -at and text and match(text, '^%d+ (%d+)') == time then -- the call is repeated
    known = true
    return true
  elseif text and size < 1 or size >= at and score ~= at then
    return false
  end
  text = leave_all(text, time, at)
  if not text then
    return false
  end
  if feed then
    note_change(user, published(score), left, time, details[index], details[index])
  end
  known = known or scores[index]
  return note(user, index, '-' .. time, text)
end

