-- Adds names to the list of namespaces, as long as there is room.
--
-- KEYS[1]  the list
-- ARGV[1]  the limit on names; 0 for none
-- ARGV     then names
--
-- Returns, for each name, 1 if it is in the list afterwards and 0 if there was no room.

local key, limit = KEYS[1], tonumber(ARGV[1])
local room = limit > 0 and limit - redis.call('ZCARD', key) or #ARGV
local listed = {}
for i = 2, #ARGV do
  listed[i - 1] = 1
  if not redis.call('ZSCORE', key, ARGV[i]) then
    if room > 0 then
      redis.call('ZADD', key, '0', ARGV[i])
      room = room - 1
    else
      listed[i - 1] = 0
    end
  end
end
return listed
