-- Reports whether all of some assertions are hidden. It changes nothing.
--
-- KEYS[1]  one shard of a namespace
-- KEYS     then see hidden.lua
-- ARGV     time, user, time, user, …
--
-- Returns {0, scores} with the users' scores if all are hidden, otherwise {1}.

local function some() return {1} end
local reply = hide(some, 1, 2, 1)
return reply[1] == 1 and {1} or {0, reply[2]}
