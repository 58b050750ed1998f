-- Takes or extends a lease; or notes something in its name, if the caller holds it.
--
-- KEYS[1]  the lease: its holder and its duration
-- KEYS[2]  the notes of its holders, a hash: each note is its version and, after a space, its text. Nothing to take or
--          extend the lease
-- ARGV[1]  the caller
-- ARGV[2]  the duration in milliseconds; with KEYS[2], for how long notes are kept
-- ARGV[3]  the key of the note
-- ARGV[4]  the version that it replaces; empty if there is none
-- ARGV[5]  its own version; empty to delete the note
-- ARGV[6]  its text
--
-- Returns 1 if the lease is granted, or the note was replaced; 0 if another caller holds it, or noted something since.
-- A lease with more time left than its duration was taken before the clock of this Redis was set back: it has ended.
-- Only this check needs the right to PTTL.

local lease = redis.call('GET', KEYS[1])
local holder, time = string.match(lease or '', '^(%S+) (%d+)$')

if KEYS[2] then
  local note = redis.call('HGET', KEYS[2], ARGV[3]) or ''
  if holder ~= ARGV[1] or string.match(note, '^%S*') ~= ARGV[4] then
    return 0
  end
  redis.call('HDEL', KEYS[2], ARGV[3]) -- after a deleting command, Redis takes what needs memory although it is full
  if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[2], ARGV[3], ARGV[5] .. ' ' .. ARGV[6])
  end
  redis.pcall('PEXPIRE', KEYS[2], ARGV[2]) -- a user of Redis who may not set this can note all the same
  return 1
end

if lease and holder ~= ARGV[1] then
  local rest = redis.pcall('PTTL', KEYS[1])
  if type(rest) ~= 'number' or rest <= tonumber(time or ARGV[2]) then
    return 0
  end
end
redis.call('UNLINK', KEYS[1]) -- a script that has called a writing command can add also when memory is full
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[2])
return 1
