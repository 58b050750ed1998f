-- Deletes a field if it still has a value.
--
-- KEYS[1]  a hash
-- ARGV[1]  the field
-- ARGV[2]  the value
--
-- Returns 1 if it was deleted, otherwise 0.

if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  return redis.call('HDEL', KEYS[1], ARGV[1])
end
return 0
