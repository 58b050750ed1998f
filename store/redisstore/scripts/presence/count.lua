-- Counts the members of score ranges, all at one moment. It changes nothing; a script that only reads
-- is also run by a Redis whose memory is full, which a transaction is not.
--
-- KEYS[1]  one shard of a namespace
-- ARGV     min, max, min, max, …
--
-- Returns one number for each range.

local counts = {}
for i = 1, #ARGV, 2 do
  counts[#counts + 1] = redis.call('ZCOUNT', KEYS[1], ARGV[i], ARGV[i + 1])
end
return counts
