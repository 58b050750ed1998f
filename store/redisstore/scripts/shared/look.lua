-- Compares the hash of a shard with the side keys that exist, and corrects it. If the two keys of hidden times differ,
-- it deletes the older one, and copies 500 users of the newer one to it. If records are lost, it notes when.
--
-- KEYS, ARGV  see sides.lua; hidden_key and private_key are named both or not at all
-- ARGV[1]     1 to keep the hash of a shard that does not exist, because it is about to be created
-- ARGV[2]     where to go on with the copy
--
-- Returns what the hash has then, after 'SIDES '; while the copy is not complete, then a space and where to go on.

local unfinished = '0.5' -- the mark of a key that is not complete; the others are less, the newest least

local function repair(position)
  local from, scan, mark, to, old = hidden_key, 'ZSCAN', mark_of(hidden_key), private_key, mark_of(private_key)
  if mark == old then
    return ''
  end
  local is_set = (tonumber(old) or 1) < (tonumber(mark) or 1)
  if is_set then
    from, scan, mark, to, old = to, 'HSCAN', old, from, mark
  end
  local function write(user, value)
    redis.call(is_set and 'ZADD' or 'HSET', to, is_set and value or user, is_set and user or value)
  end
  if old ~= unfinished then
    redis.call('UNLINK', to)
    claim()
    write('', unfinished)
    position = '0'
  end
  local reply = redis.call(scan, from, position, 'COUNT', 500)
  for i = 1, #reply[2], 2 do
    local user, value = reply[2][i], reply[2][i + 1]
    local other = is_set and (string.match(value, '^[1-9]%d*') or '+inf') or (value == 'inf' and 0 or value) .. ' '
    write(user, user == '' and unfinished or other)
  end
  if reply[1] == '0' then
    write('', mark)
    return ''
  end
  return ' ' .. reply[1]
end

if lost_records then
  redis.call('HSET', records_key, '', string.format('%.0f', clock()))
end
local position = hidden_key and repair(ARGV[2]) or ''
return {ok = 'SIDES ' .. settle(ARGV[1] == '1') .. position}
