-- Takes or extends a lease.
--
-- KEYS[1]  the lease: its holder and its duration
-- ARGV[1]  the caller
-- ARGV[2]  the duration in milliseconds
--
-- Returns 1 if the lease is granted, 0 if another caller holds it. A lease with more time left than its duration was
-- taken before the clock of this Redis was set back: it has ended. Only this check needs the right to PTTL.

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
redis.call('UNLINK', KEYS[1]) -- a script that has called a writing command can add also when memory is full
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[2])
return 1
