-- What the scripts share that note when details end, and delete what ended; it is after feed.lua and details.lua.

-- Returns the first of the times after another at which details end in part; nil if they do not.
local function next_end(details, after)
  local said, call = says(details, 0) and details.ends or math.huge, details.call
  local first = math.min(said > after and said or math.huge, call > after and call or math.huge)
  return first < math.huge and first or nil
end

-- Writes when details of a user end in part. With a feed that is the next time that its watermark has not passed yet,
-- so that no sweep misses it.
local function save_end(user, details)
  local first = feed and next_end(details, feed.watermark) or next_end(details, 0)
  if first then
    redis.call('ZADD', ends_key, digits(first), user)
  else
    redis.call('ZREM', ends_key, user)
  end
end

-- Deletes what users say, and calls, that ended by an instant, of at most so many of them.
local function delete_ended(by, most)
  local names = redis.call('ZRANGE', ends_key, '-inf', digits(by), 'BYSCORE', 'LIMIT', 0, most)
  if not names[1] then
    return
  end
  local changed = {}
  for i, text in ipairs(redis.call('HMGET', details_key, unpack(names))) do
    local details = parse_details(text)
    if not details then
      redis.call('ZREM', ends_key, names[i])
    else
      if not says(details, by) then
        details.availability, details.note = '-', ''
      end
      details.call = details.call > by and details.call or 0
      changed[#changed + 1] = names[i]
      changed[#changed + 1] = format_details(details)
      save_end(names[i], details)
    end
  end
  save_details(changed)
end
