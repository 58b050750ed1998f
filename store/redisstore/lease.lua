-- Takes a lease, or prolongs it.
--
-- KEYS[1]  the lease
-- ARGV[1]  who asks
-- ARGV[2]  for how long, in milliseconds
--
-- Returns 1 if it is granted, 0 if somebody else holds it.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
