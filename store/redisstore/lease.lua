-- Takes a lease, or prolongs it.
--
-- KEYS[1]  the lease: who holds it, and for how long it was asked for
-- ARGV[1]  who asks
-- ARGV[2]  for how long, in milliseconds
--
-- Returns 1 if it is granted, 0 if somebody else holds it. A lease that would last longer than it was asked for was
-- taken before the clock of this Redis was set back: it has ended. That needs the right to PTTL, and nothing else
-- does.

local lease = redis.call('GET', KEYS[1])
if lease then
  local holder, time = string.match(lease, '^(%S+) (%d+)$')
  if holder ~= ARGV[1] then
    local rest = redis.pcall('PTTL', KEYS[1])
    if type(rest) ~= 'number' or rest <= tonumber(time or ARGV[2]) then
      return 0
    end
  end
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[2])
return 1
