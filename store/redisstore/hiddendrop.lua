-- What the scripts share that delete hidden times.

-- Deletes hidden times that ended long before an instant, at most so many, and what users said in them.
local function drop_hidden(ends, privates, instant, most)
  local by = string.format('%.0f', instant - hidden_kept)
  local old = redis.call('ZRANGE', ends, '-inf', by, 'BYSCORE', 'LIMIT', 0, most)
  if old[1] then
    redis.call('ZREM', ends, unpack(old))
    redis.call('HDEL', privates, unpack(old))
  end
end
