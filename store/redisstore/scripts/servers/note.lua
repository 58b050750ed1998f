-- Reads a note, or replaces it, if it still is the one that the caller knows.
--
-- KEYS[1]  the notes, a hash: each is the process of Redis that recorded it, its version and its text, with a space after
--          each of the first two
-- ARGV[1]  the key of the note
--
-- To replace it:
-- ARGV[2]  the version that it replaces; empty if there is none
-- ARGV[3]  its own version; empty to delete the note
-- ARGV[4]  its text
-- ARGV[5]  for how long notes are kept, in milliseconds
--
-- Returns 1 if the note was replaced, 0 if not. To read, it returns its version, its text, and 1 if another process
-- recorded it, 0 otherwise; nothing if there is none.

-- The process changes when Redis restarts or fails over, which can lose notes. A note of another process has another
-- version, so that nobody replaces it who has not learned that.
local process = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
local note = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local recorded, version, text = string.match(note, '^(%S*) (%S*) (.*)$')
local restored = version and recorded ~= process
if restored then
  version = version .. '@' .. recorded
end
if not ARGV[2] then
  return version and {version, text, restored and 1 or 0} or {}
end
if (version or '') ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1]) -- after a deleting command, Redis takes what needs memory although it is full
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[1], process .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
end
redis.pcall('PEXPIRE', KEYS[1], ARGV[5]) -- a user of Redis who may not set this can note all the same
return 1
