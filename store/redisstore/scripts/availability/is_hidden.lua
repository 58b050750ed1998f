-- Reports whether all of some assertions are hidden. It changes nothing.
--
-- KEYS     see sides.lua and hidden.lua
-- ARGV     time, user, time, user, …
--
-- Returns {0, scores} with the users' scores if all are hidden, otherwise {1}.

local function some() return {1} end
local reply = hidden_key and hide(some, 1, 2) or {1}
return reply[1] == 1 and {1} or {0, reply[2]}
