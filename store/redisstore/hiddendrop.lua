-- What the scripts share that delete hidden times.

-- Deletes hidden times that ended long before an instant, at most so many, and what users said in them. With uses, the
-- ends become the last uses of users who have contacts: see contacts.lua.
local function drop_hidden(ends, privates, instant, most, uses)
  local by = string.format('%.0f', instant - hidden_kept)
  local old = redis.call('ZRANGE', ends, '-inf', by, 'BYSCORE', 'LIMIT', 0, most)
  if old[1] then
    for i, stop in ipairs(uses and redis.call('ZMSCORE', ends, unpack(old)) or {}) do
      redis.call('ZADD', uses, 'XX', 'GT', stop, old[i])
    end
    redis.call('ZREM', ends, unpack(old))
    if privates then
      redis.call('HDEL', privates, unpack(old))
    end
  end
end
