-- What reads whether any user of a shard says something; it follows details.lua.

-- Reports whether a user says something that others see, and that has not ended by both clocks: that of this Redis, and
-- the caller's. What has ended by one of them alone counts.
local function any_says(present)
  local time, cursor = math.min(clock(), tonumber(present)), '0'
  repeat
    local reply = redis.call('HSCAN', details_key, cursor, 'COUNT', 100)
    cursor = reply[1]
    for i = 2, #reply[2], 2 do
      local details = parse_details(reply[2][i])
      if details and says(details, time) then
        return true
      end
    end
  until cursor == '0'
  return false
end

