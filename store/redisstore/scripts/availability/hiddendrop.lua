-- What the scripts share that change hidden times; it follows clock.lua.
--
-- Each change gives hidden_key and private_key one mark, a negative number that becomes less, of the user '', whose
-- name no user has. So it shows if Redis loses one of them, or an operator restores an older one.

local function mark_hidden()
  local last = redis.call('ZSCORE', hidden_key, '') or 0
  redis.call('ZREM', hidden_key, '')
  redis.call('HDEL', private_key, '')
  if redis.call('EXISTS', hidden_key) == 1 then
    local mark = string.format('%.0f', math.min(-clock(), last - 1))
    redis.call('ZADD', hidden_key, mark, '')
    redis.call('HSET', private_key, '', mark)
  end
end

-- Deletes hidden times that ended long before an instant, at most so many, and the availability of users in them. With
-- uses, the ends become the last uses of users who have contacts: see contacts.lua.
local function drop_hidden(instant, most, uses)
  local by = string.format('%.0f', instant - hidden_kept)
  local old = redis.call('ZRANGE', hidden_key, 1, by, 'BYSCORE', 'LIMIT', 0, most)
  if old[1] then
    for i, stop in ipairs(uses and redis.call('ZMSCORE', hidden_key, unpack(old)) or {}) do
      redis.call('ZADD', uses, 'XX', 'GT', stop, old[i])
    end
    redis.call('ZREM', hidden_key, unpack(old))
    redis.call('HDEL', private_key, unpack(old))
    mark_hidden()
  end
end
