-- Adds what is published of users besides their states to entries of feedwrite.lua, which follows; details.lua comes
-- before.

-- Adds the details that were published before, and are after, to entries, which are {user, before, after, time}. There
-- are not more of them than Lua can pass to one command.
local function describe(changes)
  local users = {}
  for i, change in ipairs(changes) do
    users[i] = change[1]
  end
  local texts = redis.call('HMGET', details_key, unpack(users))
  for i, change in ipairs(changes) do
    change[5] = published_details(texts[i], change[2], feed.watermark)
    change[6] = published_details(texts[i], change[3], feed.watermark)
  end
end

