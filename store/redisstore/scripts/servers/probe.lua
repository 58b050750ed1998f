-- Does what a ping does, but changes nothing: XX updates only existing members, and the key has none. Redis refuses it
-- where it refuses a ping.
--
-- KEYS[1]  a key that does not exist

redis.call('TIME')
redis.call('ZMSCORE', KEYS[1], 'nobody')
redis.call('ZADD', KEYS[1], 'XX', '1', 'nobody')
return redis.call('EXISTS', KEYS[1])
