-- Deletes a shard with all side keys. Unless that is asked for, a shard that is used stays, and so do hidden times that
-- did not end long ago.
--
-- KEYS     see sides.lua; all that exist
-- ARGV[1]  the present, as the caller knows it; '' to delete everything
-- ARGV[2]  1 to delete nothing
--
-- Returns 1 if the shard is used: if it has users, users with an availability, or contacts; otherwise 0.

-- Reports whether a user has an availability that others see, and that has not ended by both clocks: that of this
-- Redis, and the caller's. What has ended by one of them alone counts.
local function any_availability(present)
  local time, cursor = math.min(clock(), tonumber(present)), '0'
  repeat
    local reply = redis.call('HSCAN', details_key, cursor, 'COUNT', 100)
    cursor = reply[1]
    for i = 2, #reply[2], 2 do
      local details = parse_details(reply[2][i])
      if details and has_availability(details, time) then
        return true
      end
    end
  until cursor == '0'
  return false
end

local kept = {}
if ARGV[1] ~= '' then
  local contacts = contacts_key and redis.call('EXISTS', contacts_key) == 1 -- it may be named, and gone
  if contacts or redis.call('EXISTS', KEYS[1]) == 1 or details_key and any_availability(ARGV[1]) then
    return 1
  elseif ARGV[2] == '1' then
    return 0
  end
  if hidden_key then
    drop_hidden(math.min(clock(), tonumber(ARGV[1])), 1000)
  end
  kept = {h = true, p = true}
end
local keys = {KEYS[1]}
for letter, name in pairs(side) do
  if not kept[letter] then
    keys[#keys + 1] = name
  end
end
redis.call('UNLINK', unpack(keys))
settle()
return 0
