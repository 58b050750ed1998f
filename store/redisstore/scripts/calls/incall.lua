-- Records until when users are in a call, which is a copy: see docs/decisions/calls.md.
--
-- KEYS     see feed.lua, records.lua and details.lua
-- ARGV[1]  see feed.lua
-- ARGV     then user, until, user, until, …: each user once, at most 256 of them; 0 for users who are not in a call
--
-- Returns 1 if the key of details did not exist before and does now, otherwise 0.

local users = {}
for i = 2, #ARGV, 2 do
  users[#users + 1] = ARGV[i]
end
-- A key of another type is an error before anything is written.
redis.call('ZCARD', KEYS[1])
redis.call('ZCARD', ends_key)
local texts = redis.call('HMGET', details_key, unpack(users))
local existed = redis.call('EXISTS', details_key) == 1
load_feed(clock())
local scores = feed and redis.call('ZMSCORE', KEYS[1], unpack(users)) or {}

redis.call('ZREM', ends_key, '') -- a script that has called a writing command can add also when memory is full
local changed, new_texts, new_ends = {}, {}, {}
for i, user in ipairs(users) do
  local details = details_of(texts[i])
  details.call = tonumber(ARGV[2 * i + 1])
  local new = format_details(details)
  if new ~= (texts[i] or '') and (new ~= '' or parse_details(texts[i])) then
    changed[#changed + 1] = {user, scores[i] and tonumber(scores[i]), texts[i], new}
    new_texts[#new_texts + 1] = user
    new_texts[#new_texts + 1] = new
    new_ends[#new_ends + 1] = {user, details}
  end
end
claim()
save_details(new_texts)
save_ends(new_ends)
if feed then
  for _, change in ipairs(changed) do
    append_details(unpack(change, 1, 4))
  end
  save_tip()
end
settle(true)
return existed and 0 or redis.call('EXISTS', details_key)
