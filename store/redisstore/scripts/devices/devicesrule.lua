-- What devices.lua does with items that are not simple: it follows it and devicesmerge.lua, and devicessave.lua follows
-- this. The helpers are within the function, since Lua makes them only if it is called.

-- Records items, and notes what is to be written.
local function record(items)
  local users, order, merge = {}, {}, merger()
  local lost = tonumber(redis.call('HGET', records_key, '') or '') or 0 -- when all records were lost

  -- Notes that a record does not exist any longer.
  local function drop(user, record)
    user.metas = user.metas or {}
    user.metas[record.id] = false
  end

  -- Marks the records up to a leave on all devices as gone.
  local function mark(user)
    for _, record in ipairs(user.records) do
      if not record.gone and record.at <= user.left then
        record.gone = true
        record.line = string.gsub(record.line, '\t0 %d+ ', '\t1 0 ')
      end
    end
  end

  -- Deletes the records that are older than a time.
  local function expire(user, from)
    while user.records[1] and user.records[#user.records].at < from do
      drop(user, table.remove(user.records))
    end
  end

  -- Does what simple items left undone: records older than the window against the newest one, or against a leave on all
  -- devices, do not exist any longer.
  local function catch_up(user)
    local newest = user.records[1] and user.records[1].at or 0
    expire(user, math.max(user.left, newest) - user.window)
    mark(user)
  end

  -- Reads the state of a user, and the records. A user who is not known has no records: what is left of them is
  -- deleted. A user who left, and not by a device, left on all devices.
  local function load(name)
    local score, text = scores[indexes[name]], texts[indexes[name]]
    local number = tonumber(score or 0)
    local size = math.abs(number)
    known = known or score
    local user = {
      name = name, score = score, number = score and number, text = text, fixed = size >= latest_time + 1,
      at = size < 1 and 0 or math.floor(size), gone = size >= 1 and number < 0,
      window = 0, left = 0, records = {},
    }
    local devices = text and parse(text)
    if text and not devices then
      unreadable = name
    elseif devices and user.at == 0 then
      for _, record in ipairs(devices.records) do
        drop(user, record)
      end
    elseif devices then
      user.window, user.left, user.records = devices.window, devices.left, devices.records
      catch_up(user)
    end
    local by_device = not user.gone
    for _, record in ipairs(user.records) do
      by_device = by_device or record.gone and record.at == user.at
    end
    if not by_device then
      user.left = math.max(user.left, user.at)
    end
    users[name] = user
    order[#order + 1] = user
    return user
  end

  -- Deletes what does not matter any longer, and finds out whether the user left. Records up to a leave on all devices
  -- are gone.
  local function settle(user)
    local from, records = user.at - user.window, user.records
    expire(user, from)
    mark(user)
    local bye, live = false, lost > math.max(from, 0) -- devices that are not known may be live
    local oldest_gone
    for i, record in ipairs(records) do
      bye = bye or record.gone and record.at == user.at
      live = live or not record.gone
      oldest_gone = record.gone and i > 1 and i or oldest_gone
    end
    user.gone = user.left == user.at or bye and not live
    if #records > max_devices then
      drop(user, table.remove(records, oldest_gone or #records))
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

  -- Reads the report of an item about a record.
  local function read_report(report)
    local line = string.byte(report) == 32 and report or string.match(report, '\n.*')
    return string.match(line, '^\n?(%a*) (.*)\t([01]) (%d+) $')
  end

  -- Returns since when the user uses none of the live devices active from a time on; 0 if they use one, or there is none.
  local function idle_since(user, from)
    local latest = 0
    for _, record in ipairs(user.records) do
      if not record.gone and record.at > user.left and record.at >= from then
        local idle = tonumber(string.match(record.line, '\t0 (%d+) '))
        if idle == 0 then
          return 0
        end
        latest = math.max(latest, idle)
      end
    end
    return latest
  end

  local function assert_item(i)
    local text = replaced and tonumber(ARGV[i]) > bound and digits(now) or ARGV[i]
    local at, user = tonumber(text), users[ARGV[i + 1]] or load(ARGV[i + 1])
    if user.fixed then
      return
    end
    if at > user.at then
      user.at, user.time = at, text
    end
    if ARGV[i + 2] == '' then
      user.left = math.max(user.left, at)
      settle(user)
      return
    end
    local kind, id, gone, idle = read_report(ARGV[i + 2])
    local since = tonumber(idle) >= at and idle_since(user, user.at - user.window) or 0
    idle = since > 0 and digits(since) or idle -- a device that begins idle does not show that the person was there
    user.window = window
    merge(user.records, at, text, gone == '1', kind, id, idle)
    settle(user)
    if metas[i] then
      note_meta(user, id, metas[i])
    end
  end

  local function save_state(user)
    local number = user.gone and -user.at or user.at
    if number == user.number then
      return
    end
    local time = user.time or digits(user.at)
    user.score = user.gone and '-' .. time or time
    add[#add + 1] = user.score
    add[#add + 1] = user.name
  end

  local function save_idle(user)
    local text, idle = details[indexes[user.name]] or '', idle_since(user, 0)
    user.details = text
    if idle > 0 or text ~= '' and parse_details(text) then
      user.details = with_idle(text, idle)
    end
    if user.details ~= text then
      set_details[#set_details + 1] = user.name
      set_details[#set_details + 1] = user.details
    end
  end

  local function note_user(user)
    local number = user.gone and -user.at or user.at
    local time = user.time or digits(user.at)
    note_change(user.name, published(user.number), published(number), time, details[indexes[user.name]], user.details)
  end

  -- Returns the records as text; nil if there is nothing to keep.
  local function format(user)
    if not user.records[1] and user.left == 0 then
      return nil
    end
    local lines = {digits(user.window), ' ', digits(user.left)}
    for _, record in ipairs(user.records) do
      lines[#lines + 1] = record.line
    end
    return table.concat(lines)
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

  for _, i in ipairs(items) do
    assert_item(i)
  end
  for _, user in ipairs(order) do
    if not user.fixed then
      save_state(user)
      save_records(user)
      if details_key then
        save_idle(user)
      elseif idle_since(user, 0) > 0 then
        needs_details = true
      end
      if feed then
        note_user(user)
      end
      scores[indexes[user.name]] = user.score
    end
  end
end

