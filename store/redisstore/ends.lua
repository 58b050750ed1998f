-- What the scripts share that delete what users say once it has ended; it is after details.lua.

-- Deletes what users say that ended by an instant, of at most so many of them.
local function delete_ended(by, most)
  local names = redis.call('ZRANGE', ends_key, '-inf', digits(by), 'BYSCORE', 'LIMIT', 0, most)
  if not names[1] then
    return
  end
  local changed = {}
  for i, text in ipairs(redis.call('HMGET', details_key, unpack(names))) do
    local details = parse_details(text)
    if details and not says(details, by) then
      details.availability, details.note = '-', ''
      changed[#changed + 1] = names[i]
      changed[#changed + 1] = format_details(details)
    end
  end
  save_details(changed)
  redis.call('ZREM', ends_key, unpack(names))
end
