-- Deletes members last seen longer ago than an age, whether present or left, up to a limit. The age is measured
-- by the current clock of this Redis.
--
-- KEYS     see sides.lua; its feed, records, metas, details, and the last uses of owners of contacts: see contacts.lua
-- ARGV[1]  the age in milliseconds
-- ARGV[2]  what the caller expects the clock to show, in milliseconds
-- ARGV[3]  how far the clock may be from that, in milliseconds
-- ARGV[4]  how many milliseconds a score of 1 is: 1 or 1000
-- ARGV[5]  how many to delete at most; with 0 they are only counted
-- ARGV[6]  '1' to delete them also if no user is left afterwards
-- ARGV[7]  the lowest score that is later than all times
--
-- Returns {deleted, held, old}: held is 1 if members were kept because no user would be left, old is how many
-- were too old before. When the clock is not where it is expected, deleted is -1 and old is the time in
-- milliseconds; nothing changed.
--
-- Scores between -c and c, both excluded, are older than c: one run of ranks. Deleting by rank bounds the time one call
-- can take. The availability of users stays, but they are no longer idle. What is deleted becomes the last use of
-- owners of contacts.
--
-- While there is a feed, users whom it shows as green or yellow are kept.
--
-- Numbers are passed to Redis as they are, or written with all their digits: see writeplain.lua.

local key, unit, limit = KEYS[1], ARGV[4], tonumber(ARGV[5])
local now = clock()
if math.abs(now - ARGV[2]) > tonumber(ARGV[3]) then
  return {-1, 0, now}
end
local before = now - ARGV[1]
if feed_key then
  local feed = redis.call('HMGET', feed_key, 'w', 'y')
  before = feed[1] and math.min(before, feed[1] - feed[2]) or before
  redis.call('HDEL', feed_key, 'n') -- it may be about a user who is deleted
end
if before < 1 then
  return {0, 0, 0}
end
local cutoff = before / unit

-- A bound that excludes the number.
local function beyond(number)
  return '(' .. string.format('%.17g', number)
end

local first = redis.call('ZCOUNT', key, '-inf', -cutoff)
local past = redis.call('ZCOUNT', key, '-inf', beyond(cutoff))
local old = past - first
if old > 0 and ARGV[6] ~= '1' then
  local present = redis.call('ZCOUNT', key, cutoff, '(' .. ARGV[7])
  if present == 0 and redis.call('ZCOUNT', key, '(-' .. ARGV[7], -cutoff) == 0 then
    return {0, 1, old}
  end
end

local function forget_idle(users)
  local changed = {}
  for i, text in ipairs(redis.call('HMGET', details_key, unpack(users))) do
    if text and string.byte(text) ~= 48 and parse_details(text) then
      changed[#changed + 1] = users[i]
      changed[#changed + 1] = with_idle(text, 0)
    end
  end
  save_details(changed)
end

local last = math.min(past, first + limit) - 1
if last < first then
  return {0, 0, old}
end
if records_key or details_key then
  local users = redis.call('ZRANGE', key, first, last)
  if records_key then
    forget_records(users)
  end
  if details_key then
    forget_idle(users)
  end
end
local scores = uses_key and redis.call('ZRANGE', key, first, last, 'WITHSCORES')
local deleted = redis.call('ZREMRANGEBYRANK', key, first, last)
if uses_key then -- after it: a script that has deleted something can also write when memory is full
  local uses = {}
  for i = 1, #scores, 2 do
    uses[i], uses[i + 1] = string.format('%.0f', math.abs(scores[i + 1])), scores[i]
  end
  redis.call('ZADD', uses_key, 'XX', 'GT', unpack(uses))
end
settle()
return {deleted, 0, old}
