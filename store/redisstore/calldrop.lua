-- Deletes the calls of a namespace, unless one goes on.
--
-- KEYS  see calls.lua
--
-- Returns {unreadable, used}: unreadable is nil; used is 1 if a call goes on.

if redis.call('ZCARD', due_key) > 0 then
  return {false, 1}
end
redis.call('UNLINK', unpack(KEYS))
return {false, 0}
