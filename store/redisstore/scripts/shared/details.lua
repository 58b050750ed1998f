-- What the scripts share that read or write what others see of users besides their states; it is prepended to each,
-- after feed.lua in those that publish it.
--
-- details_key  the details of the users of a shard: a hash, field = user
-- ends_key     their ends: a sorted set, the score of a user is the first time at which the details end in part: the
--              availability, or the call
--
-- The details of a user are values with spaces between them, the note to the end; times are in milliseconds. Users
-- without an availability who are not idle and not in a call have none. What is published of them has the same form,
-- but until when the user is in a call is the latest time. Idle is computed for the events of devices; no ping without
-- a device changes it.
--
--   <idle since, or 0>[/<until when the user is in a call>] <away, busy or -> <when that ends, or 0> <note>

local max_details = 1024 -- bytes; more than any have
local in_call = 253402300799999 -- is published of users in a call

-- Returns {idle, call, availability, ends, note}: idle, call and ends are numbers; call is 0 for none, ends is
-- math.huge for no end. It returns nil if another program wrote the text.
local function parse_details(text)
  if not text or #text > max_details then
    return nil
  end
  local idle, call, availability, ends, note = string.match(text, '^(%d+)(/?%d*) ([%a-]+) (%d+) (.*)$')
  if not idle or #idle > 15 or #call > 16 or call == '/' or #ends > 15 or string.find(note, '%c') then
    return nil
  end
  if availability ~= 'away' and availability ~= 'busy' and availability ~= '-' then
    return nil
  end
  ends = tonumber(ends)
  return {
    idle = tonumber(idle), call = call ~= '' and tonumber(string.sub(call, 2)) or 0, availability = availability,
    ends = ends > 0 and ends or math.huge, note = note,
  }
end

-- Returns parse_details of a text, or those of a user without any.
local function details_of(text)
  return text and text ~= '' and parse_details(text) or
    {idle = 0, call = 0, availability = '-', ends = math.huge, note = ''}
end

-- Reports whether details have an availability or a note that has not ended by a time.
local function has_availability(details, time)
  return details.ends > time and (details.availability ~= '-' or details.note ~= '')
end

-- The reverse of parse_details: '' for none.
local function format_details(details)
  local has = has_availability(details, 0)
  if details.idle == 0 and details.call == 0 and not has then
    return ''
  end
  local ends = has and details.ends < math.huge and details.ends or 0
  local availability, note = has and details.availability or '-', has and details.note or ''
  local call = details.call > 0 and '/' .. time_text(details.call) .. ' ' or ' '
  return time_text(details.idle) .. call .. availability .. ' ' .. time_text(ends) .. ' ' .. note
end

-- Returns what is published of a text at a watermark about a user with this published status, which is a number of
-- feed.lua: '' for nothing. Nothing that ended is published, and no grey user is idle or in a call.
local function published_details(text, status, watermark)
  local details = text and text ~= '' and parse_details(text)
  if not details then
    return ''
  end
  if status ~= 2 and status ~= 3 then
    details.idle, details.call = 0, 0
  end
  details.call = details.call > watermark and in_call or 0
  if not has_availability(details, watermark) then
    details.availability, details.note = '-', ''
  end
  return format_details(details)
end

-- Returns a text with another time since when the user is idle, 0 for none.
local function with_idle(text, idle)
  local details = details_of(text)
  details.idle = idle
  return format_details(details)
end

-- Writes texts of users: user, text, user, …; '' for none. There are at most 1000 users.
local function save_details(texts)
  local set, delete = {}, {''} -- earlier versions kept something in the field without a name
  for i = 1, #texts, 2 do
    local user, new = texts[i], texts[i + 1]
    if new == '' then
      delete[#delete + 1] = user
    else
      set[#set + 1] = user
      set[#set + 1] = new
    end
  end
  if #set > 0 then
    redis.call('HSET', details_key, unpack(set))
  end
  if #texts > 0 then
    redis.call('HDEL', details_key, unpack(delete))
  end
end
