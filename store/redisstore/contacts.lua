-- Changes the contacts of an owner, and notes that as the owner's last use. Either all of the changes are made, or none.
-- It follows clock.lua.
--
-- KEYS[1]  the contacts of the users of one shard: members are an owner, a NUL and a contact, all with score 0
-- KEYS[2]  the last uses of their owners: the score of an owner is the newest that is known, in milliseconds
-- ARGV[1]  the owner
-- ARGV[2]  how many contacts an owner has at most
-- ARGV[3]  1 to remove all contacts that are not added
-- ARGV[4]  how many contacts to add
-- ARGV     then those, and the contacts to remove; each is in it once
--
-- Returns {created, fits}: created is 1 if the key did not exist before and does now, fits is 0 if the owner would have
-- too many contacts.

local key, uses, owner = KEYS[1], KEYS[2], ARGV[1]
local prefix, most, adds = owner .. '\0', tonumber(ARGV[2]), tonumber(ARGV[4])
local low, high = '[' .. prefix, '(' .. owner .. '\1'

-- Calls f with values, a thousand at a time: Lua cannot unpack more than some thousands.
local function in_parts(values, f)
  for i = 1, #values, 1000 do
    f(i, unpack(values, i, math.min(#values, i + 999)))
  end
end

-- Divides the contacts from one place of ARGV to another into members of the key and others.
local function divide(first, last)
  local all, known, unknown = {}, {}, {}
  for i = first, last do
    all[#all + 1] = prefix .. ARGV[i]
  end
  in_parts(all, function(first, ...)
    for i, score in ipairs(redis.call('ZMSCORE', key, ...)) do
      local list = score and known or unknown
      list[#list + 1] = all[first + i - 1]
    end
  end)
  return known, unknown
end

redis.call('ZSCORE', uses, owner) -- a key of another type is an error before anything is written
local kept, add = divide(5, 4 + adds)
local remove = {}
if ARGV[3] == '1' then
  local wanted = {}
  for _, member in ipairs(kept) do
    wanted[member] = true
  end
  for _, member in ipairs(redis.call('ZRANGEBYLEX', key, low, high)) do
    if not wanted[member] then
      remove[#remove + 1] = member
    end
  end
else
  remove = divide(5 + adds, #ARGV)
end

local count = redis.call('ZLEXCOUNT', key, low, high) + #add - #remove
if count > most then
  return {0, 0}
end
local created = #add > 0 and 1 - redis.call('EXISTS', key) or 0
in_parts(remove, function(_, ...)
  redis.call('ZREM', key, ...)
end)
local scored = {}
for _, member in ipairs(add) do
  scored[#scored + 1] = '0'
  scored[#scored + 1] = member
end
in_parts(scored, function(_, ...)
  redis.call('ZADD', key, ...)
end)
-- A use that happens now is not noted as earlier than others: a clock that is behind must not make contacts look old.
local newest = tonumber(redis.call('ZRANGE', uses, -1, -1, 'WITHSCORES')[2])
if count == 0 then
  redis.call('ZREM', uses, owner)
else
  if #add == 0 then
    redis.call('ZREM', uses, '') -- a script that has called a writing command can add also when memory is full
  end
  redis.call('ZADD', uses, 'GT', string.format('%.0f', math.max(clock(), newest or 0)), owner)
end
if redis.call('EXISTS', key) == 0 then
  redis.call('UNLINK', uses)
end
return {created, 1}
