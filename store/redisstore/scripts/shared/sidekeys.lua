-- What the scripts share that name side keys: see sides.lua.

local side = {}
for i = 1, #named do
  side[string.sub(named, i, i)] = KEYS[i + 1]
end
local contacts_key, details_key, ends_key, feed_key, hidden_key, marks_key = side.c, side.d, side.e, side.f, side.h, side.k
local metas_key, private_key, records_key, changes_key, uses_key = side.m, side.p, side.r, side.s, side.u

-- Hidden times are in two keys with one mark: see hiddendrop.lua. While the marks differ, since Redis lost a key or has
-- an older one, or while records are lost, scripts that use them only return 'SIDES '. Then the caller runs look.lua.
local function mark_of(key)
  local mark = key and redis.call(key == hidden_key and 'ZSCORE' or 'HGET', key, '')
  return mark or key and redis.call('EXISTS', key) == 1 and '0' or ''
end
local lost_records = records_key and string.find(believed, 'r', 2, true) and redis.call('EXISTS', records_key) == 0
if uses ~= '' and (lost_records or mark_of(hidden_key) ~= mark_of(private_key)) then
  return {ok = 'SIDES '}
end

-- Returns the field with the side keys of which a function, given the letter and the key, reports that they exist. Those
-- that the caller did not name stay.
local function sides_with(exists)
  local letters = '-'
  for letter in string.gmatch('cdefhkmprsu', '.') do
    local is = string.find(believed, letter, 2, true)
    if side[letter] then
      is = exists(is, side[letter])
    end
    letters = is and letters .. letter or letters
  end
  return letters
end

-- Notes that all side keys that are named exist. It comes before the first of them is created, so that none is without
-- its letter.
local function claim()
  for i = 1, #named do
    if not string.find(believed, string.sub(named, i, i), 2, true) then
      believed = sides_with(function() return true end)
      redis.call('HSET', sides_key, 'keys', believed)
      return
    end
  end
end

-- Notes which of the side keys that are named exist. It comes after the last write of a script that may have emptied
-- one. With the shard and its last side key, the hash goes.
local function settle(stays)
  if not sides_key then
    return ''
  end
  local letters = sides_with(function(_, key) return redis.call('EXISTS', key) == 1 end)
  if letters == '-' and not stays and redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('UNLINK', sides_key)
    return ''
  end
  if letters ~= believed then
    redis.call('HDEL', sides_key, '') -- a script that has called a writing command can add also when memory is full
    redis.call('HSET', sides_key, 'keys', letters)
    believed = letters
  end
  return letters
end

-- Returns the reply of a script whose fourth element is 1 without a feed. If the caller named one, it ended.
local function note_missing(reply)
  if feed_key and reply[4] == 1 then
    settle()
  end
  return reply
end

