-- Forgets a user, and appends that to the feed.
--
-- KEYS     see feed.lua, records.lua, details.lua and hidden.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  the user

load_feed(clock())
local score = redis.call('ZSCORE', KEYS[1], ARGV[2])
if records_key then
  forget_records({ARGV[2]})
end
local text
if details_key then
  text = redis.call('HGET', details_key, ARGV[2])
  save_details({ARGV[2], ''})
end
for _, set in pairs({ends_key, KEYS[1]}) do
  redis.call('ZREM', set, ARGV[2])
end
if hidden_key and redis.call('ZREM', hidden_key, ARGV[2]) == 1 then
  redis.call('HDEL', private_key, ARGV[2])
  mark_hidden()
end
if feed then
  feed.newest = ''
  local was = published(score and tonumber(score))
  local described = published_details(text, was, feed.watermark)
  if was ~= unknown or described ~= '' then
    append(ARGV[2], was, unknown, 0, described, '')
    save_tip()
  end
end
settle()
return 0
