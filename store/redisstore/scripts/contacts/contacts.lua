-- Changes the contacts of an owner, and notes that as the owner's last use. Either all of the changes are made, or none.
-- It follows feed.lua.
--
-- A change that is too large for one script, so that Redis would serve nothing else for too long, begins with a mark,
-- which each of its scripts needs. Every other change removes the mark: what a newer change removed does not come back.
--
-- contacts_key  the contacts of the users of one shard: members are an owner, a NUL and a contact, all with score 0
-- uses_key      the last uses of their owners: the score of an owner is the newest that is known, in milliseconds
-- marks_key     the marks of large changes, by owner; nil if there are none and none is made
-- KEYS     see sides.lua; all that may be created are named
-- ARGV[1]  see feed.lua
-- ARGV[2]  the owner
-- ARGV[3]  how many contacts an owner has at most
-- ARGV[4]  what to do: 'change'; 'replace', which also removes all contacts that are not added; 'begin' a large change;
--          or 'continue' one
-- ARGV[5]  the mark of this change
-- ARGV[6]  how many contacts a script may name and find
-- ARGV[7]  how many contacts to add
-- ARGV     then those, and the contacts to remove; each is in it once
--
-- Returns {created, outcome}: created is 1 if the key did not exist before and does now, and outcome is one of those
-- below. The owner would have too many contacts; all is done; there is more to replace than one script may find, of
-- which part is removed if nothing is to be added; or another change removed the mark.
local too_many, done, too_large, overtaken = 0, 1, 2, 3

local key, uses, marks, owner, task, mark = contacts_key, uses_key, marks_key, ARGV[2], ARGV[4], ARGV[5]
local prefix, most, room, adds = owner .. '\0', tonumber(ARGV[3]), tonumber(ARGV[6]), tonumber(ARGV[7])
local low, high = '[' .. prefix, '(' .. owner .. '\1'
local mark_kept = 60000 -- milliseconds; longer than any change takes

-- Divides the contacts from one place of ARGV to another into members of the key and others.
local function divide(first, last)
  local all, known, unknown = {}, {}, {}
  for i = first, last do
    all[#all + 1] = prefix .. ARGV[i]
  end
  for i, score in ipairs(all[1] and redis.call('ZMSCORE', key, unpack(all)) or {}) do
    local list = score and known or unknown
    list[#list + 1] = all[i]
  end
  return known, unknown
end

-- Returns the contacts of the owner, as many as there is room for, except some of them.
local function others(kept)
  local wanted, remove = {}, {}
  for _, member in ipairs(kept) do
    wanted[member] = true
  end
  for _, member in ipairs(redis.call('ZRANGE', key, low, high, 'BYLEX', 'LIMIT', 0, room)) do
    if not wanted[member] then
      remove[#remove + 1] = member
    end
  end
  return remove
end

-- Notes a use that happens now, not as earlier than others: a clock that is behind must not make contacts look old.
local function note_use()
  claim()
  local newest = tonumber(redis.call('ZRANGE', uses, -1, -1, 'WITHSCORES')[2])
  redis.call('ZADD', uses, 'GT', string.format('%.0f', math.max(clock(), newest or 0)), owner)
end

redis.call('ZSCORE', uses, owner) -- a key of another type is an error before anything is written
local before = redis.call('ZLEXCOUNT', key, low, high)
if task == 'begin' then
  redis.call('HDEL', marks, owner) -- a script that has called a writing command can add also when memory is full
  claim()
  redis.call('HSET', marks, owner, mark)
  redis.call('PEXPIRE', marks, mark_kept)
  if before > 0 then
    note_use() -- so that the contacts are not deleted meanwhile: see contactstrim.lua
  end
  settle()
  return {0, done}
end
if task == 'continue' and redis.call('HGET', marks, owner) ~= mark then
  return {0, overtaken}
end
if task == 'replace' and adds > 0 and before + adds > room then
  return {0, too_large}
end

load_feed(clock())
local kept, add = divide(8, 7 + adds)
local remove = task == 'replace' and others(kept) or divide(8 + adds, #ARGV)
local count = before + #add - #remove
if count > most then
  return {0, too_many}
end
local created = #add > 0 and 1 - redis.call('EXISTS', key) or 0
if remove[1] then
  redis.call('ZREM', key, unpack(remove))
end
local scored = {}
for _, member in ipairs(add) do
  scored[#scored + 1] = '0'
  scored[#scored + 1] = member
end
if add[1] then
  claim()
  redis.call('ZADD', key, unpack(scored))
end
if marks and task ~= 'continue' then
  redis.call('HDEL', marks, owner)
end
if count == 0 then
  redis.call('ZREM', uses, owner)
else
  if #add == 0 then
    redis.call('ZREM', uses, '') -- as above
  end
  note_use()
end
if redis.call('EXISTS', key) == 0 then
  redis.call('UNLINK', uses)
end
if add[1] or remove[1] then
  append_contacts(owner)
  save_tip()
end
settle()
return {created, task == 'replace' and count > #kept + #add and too_large or done}
