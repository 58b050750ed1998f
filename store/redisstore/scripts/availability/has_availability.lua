-- Reports whether a user of a shard says something that others see, and that has not ended. It changes nothing.
--
-- KEYS     see sides.lua and details.lua
-- ARGV[1]  the present, as the caller knows it
--
-- Returns 1 if one does, otherwise 0.

return details_key and any_says(ARGV[1]) and 1 or 0
