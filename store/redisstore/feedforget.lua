-- Forgets a user, and appends that to the feed.
--
-- KEYS     see feed.lua, records.lua in namespaces that may have devices, and details.lua in those in which users may
--          have details; then, where users may be hidden, the ends of hidden times and what those users say
-- ARGV[1]  see feed.lua
-- ARGV[2]  the user
--
-- Returns 1 if there is no feed, otherwise 0.

local hidden_key, private_key = KEYS[8], KEYS[9]
load_feed(clock())
local score = redis.call('ZSCORE', KEYS[1], ARGV[2])
if records_key then
  forget_records({ARGV[2]})
end
local text
if details_key then
  text = redis.call('HGET', details_key, ARGV[2])
  save_details({ARGV[2], text, ''})
  redis.call('ZREM', ends_key, ARGV[2])
end
if hidden_key then
  redis.call('ZREM', hidden_key, ARGV[2])
  redis.call('HDEL', private_key, ARGV[2])
end
redis.call('ZREM', KEYS[1], ARGV[2])
if not feed then
  return 1
end
local was = published(score and tonumber(score))
local described = published_details(text, was, feed.watermark)
if was ~= unknown or described ~= '' then
  append(ARGV[2], was, unknown, 0, described, '')
  save_tip()
end
return 0
