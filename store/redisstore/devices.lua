-- Records what devices asserted, and that users left on all devices. The rule is that of Devices of package lastseen,
-- whose methods Assert and Leave this follows step by step.
--
-- KEYS     see feed.lua and records.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  the latest of the times that follow, in milliseconds
-- ARGV[3]  for how long a device counts that has not said goodbye, in milliseconds
-- ARGV     then items, at most 256 of them: 'all', time, user for a leave on all devices; 'ping' or 'bye', time, user, ID
--          of the record, kind, since when it is idle or 0, and the meta or '' for a device
--
-- Returns {created, scores, previous, missing, unreadable}: created and scores are those of ping.lua, a score for each
-- item; previous is nil; missing is 1 if there is no feed; unreadable is a user whose records another program wrote, if
-- there is one. Those count as none.

local key, now, window = KEYS[1], clock(), tonumber(ARGV[3])
load_feed(now)

-- Times too far ahead are replaced by the time of this Redis, whatever the caller's clock shows.
local bound = now + max_ahead
local replaced = tonumber(ARGV[2]) > bound
local function bounded(time)
  return replaced and tonumber(time) > bound and digits(now) or time
end

-- Users, in the order in which they are named first.
local users, names = {}, {}
do
  local i = 4
  while i <= #ARGV do
    local name = ARGV[i + 2]
    if not users[name] then
      users[name] = {name = name}
      names[#names + 1] = name
    end
    i = i + (ARGV[i] == 'all' and 3 or 7)
  end
end

-- Notes that a record does not exist any longer.
local function drop(user, record)
  user.metas = user.metas or {}
  user.metas[record.id] = false
end

local known, unreadable = false, nil

-- Reads the state of a user from the score, and the records from the text. A user who is not known has no records: what
-- is left of them is deleted.
local function load(user, score, text)
  local time = tonumber(score or 0)
  local size = math.abs(time)
  known = known or score
  user.score, user.number, user.text = score, score and time, text
  user.fixed = size >= latest_time + 1
  user.at, user.gone = size < 1 and 0 or math.floor(size), size >= 1 and time < 0
  user.window, user.left, user.records = 0, 0, {}
  local devices = text and parse(text)
  if text and not devices then
    unreadable = user.name
  elseif devices and user.at == 0 then
    for _, record in ipairs(devices.records) do
      drop(user, record)
    end
  elseif devices then
    user.window, user.left, user.records = devices.window, devices.left, devices.records
  end
end

-- A user who left, and not by a device, left on all devices.
local function find_leave(user)
  for _, record in ipairs(user.records) do
    if record.gone and record.at == user.at then
      return
    end
  end
  user.left = math.max(user.left, user.at)
end

-- Adds a record where it belongs: the newest first, and at one time by ID.
local function insert(records, new)
  local i = #records
  while i > 0 and (new.at > records[i].at or new.at == records[i].at and before(new.id, records[i].id)) do
    records[i + 1] = records[i]
    i = i - 1
  end
  records[i + 1] = new
end

-- Reports whether an assertion of a record is less than the one that is kept.
local function is_less(at, gone, idle, old, old_idle)
  if at ~= old.at then
    return at < old.at
  elseif gone ~= old.gone then
    return old.gone
  end
  return tonumber(idle) < tonumber(old_idle)
end

-- The earlier of two times as text, where 0 is none; the first one if either is none.
local function first_idle(idle, other)
  return other ~= '0' and idle ~= '0' and tonumber(other) < tonumber(idle) and other or idle
end

-- Adds what a device asserted to the records. It cannot be idle since later than this time, nor if it is gone.
local function merge(records, at, text, gone, id, kind, idle)
  local since = text
  idle = gone and '0' or tonumber(idle) > at and text or idle
  for i, old in ipairs(records) do
    if old.id == id then
      local begun, old_idle = string.match(old.line, '^%d+ %d (%d+) (%d+)')
      since = tonumber(begun) < at and begun or text
      if is_less(at, gone, idle, old, old_idle) then
        idle = first_idle(old_idle, idle)
        if since ~= begun or idle ~= old_idle then
          old.line = string.gsub(old.line, '^(%d+ %d )%d+ %d+', '%1' .. since .. ' ' .. idle)
        end
        return
      end
      idle = first_idle(idle, old_idle)
      table.remove(records, i)
      break
    end
  end
  local line = text .. (gone and ' 1 ' or ' 0 ') .. since .. ' ' .. idle .. ' ' .. kind .. ' ' .. id .. '\n'
  insert(records, {at = at, gone = gone, id = id, line = line})
end

-- Deletes what does not matter any longer, and finds out whether the user left. Records up to a leave on all devices are
-- gone.
local function settle(user)
  local from, records = user.at - user.window, user.records
  while records[1] and records[#records].at < from do
    drop(user, table.remove(records))
  end
  local bye, live = user.left == user.at, false
  for i, record in ipairs(records) do
    if not record.gone and record.at <= user.left then
      record.gone = true
      record.line = string.gsub(record.line, '^(%d+) 0 (%d+) %d+', '%1 1 %2 0')
    end
    bye = bye or record.gone and record.at == user.at
    live = live or i <= max_devices and not record.gone
  end
  user.gone = bye and not live
  if #records > max_devices then
    drop(user, table.remove(records))
  end
  if user.window > 0 and user.left < from then
    user.left = 0
  end
  if not records[1] and user.left == 0 then
    user.window = 0
  end
end

-- Notes the meta of a record, if there is one.
local function note_meta(user, id, meta)
  for _, record in ipairs(user.records) do
    if record.id == id then
      user.metas = user.metas or {}
      user.metas[id] = meta
    end
  end
end

-- Records one item, and returns how many arguments it has.
local function assert_item(i)
  local op, text, user = ARGV[i], bounded(ARGV[i + 1]), users[ARGV[i + 2]]
  local at = tonumber(text)
  if user.fixed then
    return op == 'all' and 3 or 7
  end
  if at > user.at then
    user.at, user.time = at, text
  end
  if op == 'all' then
    user.left = math.max(user.left, at)
    settle(user)
    return 3
  end
  user.window = window
  merge(user.records, at, text, op == 'bye', ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
  settle(user)
  if ARGV[i + 6] ~= '' then
    note_meta(user, ARGV[i + 3], ARGV[i + 6])
  end
  return 7
end

-- Returns the records as text; nil if there is nothing to keep.
local function format(user)
  if #user.records == 0 and user.left == 0 then
    return nil
  end
  local lines = {digits(user.window), ' ', digits(user.left), '\n'}
  for _, record in ipairs(user.records) do
    lines[#lines + 1] = record.line
  end
  return table.concat(lines)
end

do
  local scores = redis.call('ZMSCORE', key, unpack(names))
  local texts = redis.call('HMGET', records_key, unpack(names))
  for i, name in ipairs(names) do
    local user = users[name]
    load(user, scores[i], texts[i])
    if user.gone then
      find_leave(user)
    end
  end
end
do
  local i = 4
  while i <= #ARGV do
    i = i + assert_item(i)
  end
end

-- What is written: the states, the records, and the entries of the feed.
local add, set, delete, set_metas, delete_metas, changes = {}, {}, {}, {}, {}, {}
local function save_state(user)
  local number = user.gone and -user.at or user.at
  if number == user.number then
    return
  end
  local time = user.time or digits(user.at)
  user.score = user.gone and '-' .. time or time
  add[#add + 1] = user.score
  add[#add + 1] = user.name
  local was, is = feed and published(user.number), feed and published(number)
  if was ~= is and differs(was, is) then
    changes[#changes + 1] = {user.name, was, is, time}
  end
end

local function save_records(user)
  local text = format(user)
  if text and text ~= user.text then
    set[#set + 1] = user.name
    set[#set + 1] = text
  elseif user.text and not text then
    delete[#delete + 1] = user.name
  end
  for id, meta in pairs(user.metas or {}) do
    local field = user.name .. '\n' .. id
    if meta then
      set_metas[#set_metas + 1] = field
      set_metas[#set_metas + 1] = meta
    else
      delete_metas[#delete_metas + 1] = field
    end
  end
end

for _, name in ipairs(names) do
  local user = users[name]
  if not user.fixed then
    save_state(user)
    save_records(user)
  end
end

-- A hash of another type is an error before anything is written.
if #set_metas > 0 then
  redis.call('HSET', metas_key, unpack(set_metas))
end
delete_fields(metas_key, delete_metas)
if #set > 0 then
  redis.call('HSET', records_key, unpack(set))
end
delete_fields(records_key, delete)
local created = known and 0 or 1 - redis.call('EXISTS', key)
if #add > 0 then
  redis.call('ZADD', key, unpack(add))
end
for _, change in ipairs(changes) do
  append(unpack(change))
end
save_tip()

local scores = {}
do
  local i = 4
  while i <= #ARGV do
    scores[#scores + 1] = users[ARGV[i + 2]].score
    i = i + (ARGV[i] == 'all' and 3 or 7)
  end
end
return {created, scores, false, feed and 0 or 1, unreadable}
