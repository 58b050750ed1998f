-- Reads the devices of a user, all at one moment. It changes nothing.
--
-- KEYS     see sides.lua and records.lua
-- ARGV[1]  the user
--
-- Returns {score, records, metas}: the records as they are stored, and the meta of each, nil for those without one.
-- Without metas another program wrote the records. Without records the user has no devices. Without a score the user is
-- not known.

local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score then
  return {}
end
local text = records_key and redis.call('HGET', records_key, ARGV[1])
local devices = text and parse(text)
if not devices then
  return {score, text}
end
local fields, none = {}, {}
for i, record in ipairs(devices.records) do
  fields[i], none[i] = ARGV[1] .. '\n' .. record.id, false
end
return {score, text, metas_key and fields[1] and redis.call('HMGET', metas_key, unpack(fields)) or none}
