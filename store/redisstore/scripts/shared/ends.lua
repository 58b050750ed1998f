-- What the scripts share that change details, note when they end, and delete what ended; it is after feed.lua and
-- details.lua.

-- Returns the first of the times after another at which details end in part; nil if they do not.
local function next_end(details, after)
  local ends, call = has_availability(details, 0) and details.ends or math.huge, details.call
  local first = math.min(ends > after and ends or math.huge, call > after and call or math.huge)
  return first < math.huge and first or nil
end

-- Returns when details end in part, nil if they do not. With a feed that is the next time that its watermark has not
-- passed yet, so that no advance misses it.
local function end_of(details)
  return feed and next_end(details, feed.watermark) or next_end(details, 0)
end

-- Writes when details of some users end in part, at most 500 of them: an entry is a user and the details.
local function save_ends(entries)
  local add, remove = {}, {}
  for _, entry in ipairs(entries) do
    local first = end_of(entry[2])
    if first then
      add[#add + 1] = time_text(first)
      add[#add + 1] = entry[1]
    else
      remove[#remove + 1] = entry[1]
    end
  end
  if add[1] then
    redis.call('ZADD', ends_key, unpack(add))
  end
  if remove[1] and ends_key then
    redis.call('ZREM', ends_key, unpack(remove))
  end
end

local function save_end(user, details)
  save_ends({{user, details}})
end

-- Appends that other details are published of a user with this score, if they are; score is a number, nil for none.
local function append_details(user, score, text, new)
  local status, mark = published(score), feed.watermark
  local was, is = published_details(text, status, mark), published_details(new, status, mark)
  if was ~= is then
    append(user, status, status, status == unknown and '0' or digits(math.floor(math.abs(score))), was, is)
  end
end

-- Deletes the availability of users, and calls, that ended by an instant, of at most so many of them. Reports whether
-- there were any.
local function delete_ended(by, most)
  local names = ends_key and redis.call('ZRANGE', ends_key, '-inf', digits(by), 'BYSCORE', 'LIMIT', 0, most) or {}
  if not names[1] then
    return false
  end
  local changed = {}
  local texts = details_key and redis.call('HMGET', details_key, unpack(names)) or {}
  for i = 1, #names do
    local details = parse_details(texts[i])
    if not details then
      redis.call('ZREM', ends_key, names[i])
    else
      if not has_availability(details, by) then
        details.availability, details.note = '-', ''
      end
      details.call = details.call > by and details.call or 0
      changed[#changed + 1] = names[i]
      changed[#changed + 1] = format_details(details)
      save_end(names[i], details)
    end
  end
  save_details(changed)
  return true
end
