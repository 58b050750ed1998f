-- What the scripts share that use the side keys of a shard, such as its feed; it comes first in each, and then, if it
-- names any, sidekeys.lua.
--
-- KEYS[1]      one shard of a namespace
-- KEYS         then side keys, in the order of their letters
-- KEYS[#KEYS]  which side keys exist: a hash. Its field "keys" is '-' and their letters, in alphabetical order
-- ARGV         the last three, which are removed: the letters of the side keys that the script uses if they exist; those of
--              the side keys in KEYS; and what the field has, as far as the caller knows
--
-- A script names side keys that exist, or that it may create. If there is no hash, or a side key that it uses and that is
-- not named, it writes nothing, and returns the field after 'SIDES '. A set that other programs write has no side keys,
-- and KEYS[1] alone.

local believed, named, uses = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
local sides_key = #KEYS > 1 and KEYS[#KEYS]
if sides_key then
  local stored = redis.call('HGET', sides_key, 'keys') or ''
  if stored ~= believed then
    local unnamed = string.gsub(stored, '[-' .. named .. ']', '')
    if stored == '' or believed == '' or uses ~= '' and string.find(unnamed, '[' .. uses .. ']') then
      return {ok = 'SIDES ' .. stored}
    end
    believed = stored
  end
end

