-- Deletes what is kept of devices in a shard that has no users.
--
-- KEYS  see feed.lua and records.lua
--
-- Returns 1 if the shard has users, otherwise 0.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 1
end
redis.call('UNLINK', KEYS[4], KEYS[5])
return 0
