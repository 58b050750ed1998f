-- Reads some members, about as many as asked, in an order that only the running process has. A member that exists from
-- the first call of a scan to the last is read at least once. It changes nothing.
--
-- KEYS[1]  one shard of a namespace
-- ARGV[1]  the process that the scan began in; '' to begin one
-- ARGV[2]  where to continue, from the last reply; '0' to begin
-- ARGV[3]  how many members to read
--
-- Returns {process, next, member, member, …}. next is '0' after the last call. In another process than the one named,
-- the scan begins again: each has its own hash function, whose values decide the order.
local process = string.sub(redis.sha1hex(string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')), 1, 16)
local from = ARGV[1] == process and ARGV[2] or '0'
local found = redis.call('ZSCAN', KEYS[1], from, 'COUNT', ARGV[3])
local reply = {process, found[1]}
for i = 1, #found[2], 2 do
  reply[#reply + 1] = found[2][i]
end
return reply
