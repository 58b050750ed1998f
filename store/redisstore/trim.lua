-- Deletes members last seen longer ago than an age, whether present, left or hidden, up to a limit. The age is measured
-- by the current clock of this Redis.
--
-- KEYS[1]  one shard of a namespace
-- KEYS[2]  its feed, in namespaces that may have one: see feed.lua
-- KEYS[4]  the records of users, in namespaces that may have devices: see records.lua
-- KEYS[5]  what clients said about devices
-- ARGV[1]  the age in milliseconds
-- ARGV[2]  what the caller expects the clock to show, in milliseconds
-- ARGV[3]  how far the clock may be from that, in milliseconds
-- ARGV[4]  how many milliseconds a score of 1 is: 1 or 1000
-- ARGV[5]  how many to delete at most; with 0 they are only counted
-- ARGV[6]  '1' to delete them also if no user is left afterwards
-- ARGV[7]  the lowest score that is later than all times
-- ARGV[8]  the lowest score of the hidden band, or '' if there is none
--
-- Returns {deleted, held, old}: held is 1 if members were kept because no user would be left, old is how many
-- were too old before. When the clock is not where it is expected, deleted is -1 and old is the time in
-- milliseconds; nothing changed.
--
-- Scores between -c and c, both excluded, are older than c: one run of ranks. Hidden members are
-- another run. Deleting by rank bounds the time one call can take.
--
-- While there is a feed, users whom it shows as green or yellow are kept.
--
-- Numbers are passed to Redis as they are, or written with all their digits: see ping.lua.

local key, unit, limit = KEYS[1], ARGV[4], tonumber(ARGV[5])
local now = clock()
if math.abs(now - ARGV[2]) > tonumber(ARGV[3]) then
  return {-1, 0, now}
end
local before = now - ARGV[1]
if KEYS[2] then
  local feed = redis.call('HMGET', KEYS[2], 'w', 'y')
  before = feed[1] and math.min(before, feed[1] - feed[2]) or before
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

-- Deletes members from one rank up to another, as many as are left of the limit.
local deleted = 0
local function delete(first, past)
  local last = math.min(past, first + limit - deleted) - 1
  if last >= first then
    if records_key then
      forget_records(redis.call('ZRANGE', key, first, last))
    end
    deleted = deleted + redis.call('ZREMRANGEBYRANK', key, first, last)
  end
end

delete(first, past)
if ARGV[8] ~= '' then
  first = redis.call('ZCOUNT', key, '-inf', '(' .. ARGV[8])
  past = redis.call('ZCOUNT', key, '-inf', beyond(ARGV[8] + cutoff))
  old = old + math.max(0, past - first)
  delete(first, past)
end
return {deleted, 0, old}
