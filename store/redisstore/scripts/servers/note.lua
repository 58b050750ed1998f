-- Replaces a note, if it still is the one that the caller knows.
--
-- KEYS[1]  the notes, a hash: each is its version and, after a space, its text
-- ARGV[1]  the key of the note
-- ARGV[2]  the version that it replaces; empty if there is none
-- ARGV[3]  its own version; empty to delete the note
-- ARGV[4]  its text
-- ARGV[5]  for how long notes are kept, in milliseconds
--
-- Returns 1 if the note was replaced, 0 otherwise.

local note = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if string.match(note, '^%S*') ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1]) -- after a deleting command, Redis takes what needs memory although it is full
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3] .. ' ' .. ARGV[4])
end
redis.pcall('PEXPIRE', KEYS[1], ARGV[5]) -- a user of Redis who may not set this can note all the same
return 1
