-- Forgets a user, and appends that to the feed.
--
-- KEYS     see feed.lua, and records.lua in namespaces that may have devices
-- ARGV[1]  see feed.lua
-- ARGV[2]  the user
--
-- Returns 1 if there is no feed, otherwise 0.

load_feed(clock())
local score = redis.call('ZSCORE', KEYS[1], ARGV[2])
if records_key then
  forget_records({ARGV[2]})
end
redis.call('ZREM', KEYS[1], ARGV[2])
if not feed then
  return 1
end
local was = published(score and tonumber(score))
if was ~= unknown then
  append(ARGV[2], was, unknown, 0)
  save_tip()
end
return 0
