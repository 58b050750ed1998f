-- Asks all servers to close the connections of a user, or to drop what they received in a namespace that is deleted.
--
-- KEYS[1]  the disconnects: a sorted set. The score is the time at which it was asked, or one more than the newest one
--          if that is later: so scores are in order. A member is that time, how much later the score is, the namespace
--          and the user: so members are unique.
-- ARGV[1]  the namespace and the user; an empty user for the namespace; an empty namespace for a mark, whose user is
--          random
-- ARGV[2]  for how long a disconnect is kept, in milliseconds
-- ARGV[3]  how many are kept at most

local now, max_delete = clock(), 1000
local newest = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
local score = math.max(now, newest and newest + 1 or 0)
-- After a deleting command, Redis takes what needs memory although it is full. What frees memory has to work then.
redis.call('ZREM', KEYS[1], '')
redis.call('ZADD', KEYS[1], score, string.format('%.0f %.0f ', now, score - now) .. ARGV[1])
local old = redis.call('ZCOUNT', KEYS[1], '-inf', score - ARGV[2])
local many = redis.call('ZCARD', KEYS[1]) - ARGV[3]
local delete = math.min(math.max(old, many), max_delete)
if delete > 0 then
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, delete - 1)
end
-- The last ones are not kept for longer either: they can name users who were forgotten. A user of Redis who may not set
-- this can ask all the same.
redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
return 1
