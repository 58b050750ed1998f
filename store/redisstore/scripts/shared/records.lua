-- What the scripts share that read the records of devices; it is prepended to each.
--
-- records_key  the records of the users of a shard: a hash, field = user
-- metas_key    what clients sent about devices: a hash, field = user, newline, ID of the record
--
-- The records of a user are lines of text. The first one is about the user, each of the others is a record, the newest
-- first. The lines have newlines between them. Times and the window are in milliseconds: see Devices of package
-- lastseen. The field '' has when Redis lost all records, as far as that is known; it can be empty.
--
--   <window> <when the user left on all devices, or 0>
--   <kind> <ID><tab><1 if gone, otherwise 0> <idle since, or 0> <since> <at>

local max_text = 8192 -- more than max_devices lines can have

-- Returns {window, left, records}, as they are written; nil if another program wrote the text. The line of a record begins
-- with its newline.
local function parse(text)
  local window, left, past = string.match(text, '^(%d+) (%d+)()')
  if not window or #window > 15 or #left > 15 or #text > max_text then
    return nil
  end
  local records, size, latest = {}, past - 1, math.huge
  for line, id, gone, at in string.gmatch(text, '(\n%a+ ([^\n\t]+)\t([01]) %d+ %d+ (%d+))') do
    local time = tonumber(at)
    if time > latest or #at > 15 then
      return nil
    end
    records[#records + 1] = {at = time, gone = gone == '1', id = id, line = line}
    size, latest = size + #line, time
  end
  if size ~= #text or #records > max_devices then
    return nil
  end
  return {window = tonumber(window), left = tonumber(left), records = records}
end

-- As many arguments as Lua can pass to one command.
local max_args = 4000

local function delete_fields(key, fields)
  for first = 1, #fields, max_args do
    local past = math.min(#fields, first + max_args - 1)
    redis.call('HDEL', key, unpack(fields, first, past))
  end
end

-- Deletes records. The hash stays until the shard is deleted, if need be with the field '', since no user has that name:
-- from the first device on, leaves without one concern devices that report late, also while there is no record.
local function delete_records(users)
  delete_fields(records_key, users)
  if redis.call('EXISTS', records_key) == 0 then
    redis.call('HSET', records_key, '', '') -- after it, memory may be full
  end
end

-- Deletes the records of users, at most 4000 of them.
local function forget_records(users)
  if metas_key then
    local texts, metas = redis.call('HMGET', records_key, unpack(users)), {}
    for i, user in ipairs(users) do
      local text = texts[i] or ''
      for id in string.gmatch(#text <= max_text and text or '', '\n%a+ ([^\n\t]+)\t') do
        metas[#metas + 1] = user .. '\n' .. id
      end
    end
    delete_fields(metas_key, metas)
  end
  delete_records(users)
end

