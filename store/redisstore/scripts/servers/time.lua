-- Returns the time of the Redis that has a key.
--
-- KEYS[1]  the key; nothing is read from it
--
-- Returns {seconds, microseconds}.

return redis.call('TIME')
