-- Compares the hash of a shard with the side keys that exist, and corrects it.
--
-- KEYS, ARGV  see sides.lua
-- ARGV[1]     1 to keep the hash of a shard that does not exist, because it is about to be created
--
-- Returns what the hash has then, after 'SIDES '.

return {ok = 'SIDES ' .. settle(ARGV[1] == '1')}
