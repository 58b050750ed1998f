-- What the scripts share that read or write what others see of users besides their states; it is prepended to each,
-- after feed.lua in those that publish it.
--
-- KEYS[6]  the details of the users of a shard: a hash, field = user
-- KEYS[7]  their ends: a sorted set, the score of a user is the first time at which the details end in part: what the
--          user says, or the call
--
-- The details of a user are values with spaces between them, the note to the end; times are in milliseconds. Users who
-- say nothing, are not idle and not in a call have none. What is published of them has the same form, but until when
-- the user is in a call is the latest time. Idle is computed when a device asserts something; no ping without a device
-- changes it. The field '' has versions of groups of users: see save_details.
--
--   <idle since, or 0>[/<until when the user is in a call>] <away, busy or -> <when what the user says ends, or 0> <note>

local details_key, ends_key = KEYS[6], KEYS[7]
local max_details = 1024 -- bytes; more than any have
local in_call = 253402300799999 -- is published of users in a call

-- Returns {idle, call, availability, ends, note}: idle, call and ends are numbers; call is 0 for none, ends is math.huge
-- for no end. It returns nil if another program wrote the text.
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

-- Reports whether details say anything that has not ended by a time.
local function says(details, time)
  return details.ends > time and (details.availability ~= '-' or details.note ~= '')
end

-- Formatting is slow, and the times of users in calls are often equal.
local time_texts = {[0] = '0'}
local function time_text(time)
  local text = time_texts[time]
  if not text then
    text = string.format('%.0f', time)
    time_texts[time] = text
  end
  return text
end

-- The reverse of parse_details: '' for none.
local function format_details(details)
  local said = says(details, 0)
  if details.idle == 0 and details.call == 0 and not said then
    return ''
  end
  local ends = said and details.ends < math.huge and details.ends or 0
  local availability, note = said and details.availability or '-', said and details.note or ''
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
  if not says(details, watermark) then
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

local versions_field, groups, version_size = '', 8, 8

-- The place of a user's group, from 0: the first bits of a hash of 32. It is that of the last bytes of a long name. The
-- last rounds are for short ones.
local function group_of(user)
  local hash = 0
  local bytes = {string.byte(user, -64, -1)}
  for i = 1, #bytes + 2 do
    hash = (hash * 1000003 + (bytes[i] or 0)) % 4294967296
  end
  return math.floor(hash / (4294967296 / groups))
end

-- Gives the groups of users versions that they have never had. A hash without users has none.
local function renew_versions(users)
  local old = redis.call('HGET', details_key, versions_field)
  if redis.call('HLEN', details_key) == (old and 1 or 0) then
    redis.call('UNLINK', details_key)
    return
  end
  local time = redis.call('TIME')
  local digest = redis.sha1hex(table.concat({old or '', time[1], time[2], users[1]}, ' '))
  local new = string.gsub(string.sub(digest, 1, 2 * version_size), '..', function(byte)
    return string.char(tonumber(byte, 16))
  end)
  local valid, versions, left = old and #old == groups * version_size, {}, groups
  for group = 0, groups - 1 do
    local first = group * version_size
    versions[group + 1] = valid and string.sub(old, first + 1, first + version_size) or new
  end
  for _, user in ipairs(users) do
    local place = group_of(user) + 1
    if versions[place] ~= new then
      versions[place], left = new, left - 1
      if left == 0 then
        break
      end
    end
  end
  redis.call('HSET', details_key, versions_field, table.concat(versions))
end

-- Writes texts of users: user, text before, text, user, …; false or '' for none. There are at most 1000 users. If a user
-- gets details or loses them, the user's group gets another version in the same step. So while its version is the same,
-- a group has the same users without details, also on a replica, or a Redis that lost changes: see undescribed.go.
local function save_details(texts)
  local set, delete, changed = {}, {}, {}
  for i = 1, #texts, 3 do
    local user, old, new = texts[i], texts[i + 1] or '', texts[i + 2]
    if new == '' then
      delete[#delete + 1] = user
    else
      set[#set + 1] = user
      set[#set + 1] = new
    end
    if (old == '') ~= (new == '') then
      changed[#changed + 1] = user
    end
  end
  if #set > 0 then
    redis.call('HSET', details_key, unpack(set))
  end
  if #delete > 0 then
    redis.call('HDEL', details_key, unpack(delete))
  end
  if #changed > 0 then
    renew_versions(changed)
  end
end
