-- Reads disconnects after a position. It changes nothing.
--
-- KEYS[1]  the disconnects: see disconnect.lua
-- ARGV[1]  how many at most
-- ARGV[2]  the score of the position, or nothing for the end
-- ARGV[3]  its member
--
-- Returns {member, score, …}: the newest one for the end. If the position is not there, because Redis lost it, all that
-- is kept follows it, and then a last element alone.

if not ARGV[2] then
  return redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
end
local score, from = redis.call('ZSCORE', KEYS[1], ARGV[3]), '-inf'
if score and tonumber(score) == tonumber(ARGV[2]) then
  from = '(' .. ARGV[2]
end
local all = redis.call('ZRANGE', KEYS[1], from, '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[1], 'WITHSCORES')
if from == '-inf' then
  all[#all + 1] = 'lost'
end
return all
