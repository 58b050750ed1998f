-- Records what a user says. It is after a function leave_devices, which does what devices.lua does.
--
-- KEYS     see feed.lua, records.lua and details.lua
-- KEYS[8]  the last uses of owners of contacts: see contacts.lua
-- KEYS     then see hidden.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  the present, in milliseconds
-- ARGV[3]  the user
-- ARGV[4]  away, busy or invisible; '' for neither
-- ARGV[5]  the note
-- ARGV[6]  when this ends, in milliseconds; 0 if it does not
-- ARGV[7]  1 in namespaces that may have devices
--
-- Returns {created, score, fresh, missing, seen}: created is 1 if the namespace did not exist before and does now; fresh is
-- 1 if the key of what was written did not exist before; missing is 1 if there is no feed; seen is what can look different
-- to others: 0 for nothing, since the user was invisible before; 1 for the state, since the user left; 2 for what is said.
-- A call that is repeated, since its reply was lost, finds that the user left at its time: that is 1, too.

local key, uses_key, user, availability, note = KEYS[1], KEYS[8], ARGV[3], ARGV[4], ARGV[5]
local now, time, ends = clock(), ARGV[2], tonumber(ARGV[6])
if tonumber(time) > now + max_ahead then
  time = digits(now) -- whatever the caller's clock shows
end
local at = tonumber(time)
if ends ~= 0 and ends <= at then
  availability, note = '', ''
end
local says_something = availability ~= '' or note ~= ''
if not says_something then
  ends = 0
end

-- A key of another type is an error before anything is written.
local score, text = redis.call('ZSCORE', key, user), redis.call('HGET', details_key, user) or ''
local stop, private = redis.call('ZSCORE', hidden_key, user), redis.call('HGET', private_key, user)
local existed, number = redis.call('EXISTS', key) == 1, score and tonumber(score)
redis.call('ZSCORE', ends_key, user)
redis.call('ZSCORE', uses_key, user)
local invisible = private and stop and number_of(stop) > at
local had_feed = redis.call('EXISTS', feed_key) == 1

-- Records a leave on all devices: at the present, or at the user's time if that is later.
local function leave()
  local size = math.floor(math.abs(number or 0))
  if size > at then
    time = digits(size)
  end
  if size > latest_time then
    return -- another program wrote it
  elseif ARGV[7] == '1' then
    leave_devices({ARGV[1], 0, 0, 1, time, user, ''})
    return
  end
  load_feed(now)
  redis.call('ZADD', key, '-' .. time, user)
  local was = feed and published(number)
  if feed and differs(was, left) then
    local mark = feed.watermark
    append(user, was, left, time, published_details(text, was, mark), published_details(text, left, mark))
    save_tip()
  end
end

-- Records what others see.
local function save_public()
  local details = details_of(text)
  details.availability, details.note = availability ~= '' and availability or '-', note
  details.ends = ends > 0 and ends or math.huge
  local new = format_details(details)
  if new ~= text then
    save_details({user, text, new})
  end
  load_feed(now)
  save_end(user, details)
  if not feed then
    return
  end
  local status = published(number)
  local was, is = published_details(text, status, feed.watermark), published_details(new, status, feed.watermark)
  if was ~= is then
    append(user, status, status, status == unknown and '0' or digits(math.floor(math.abs(number))), was, is)
    save_tip()
  end
end

local fresh, seen = 0, 2
if availability == 'invisible' then
  fresh = 1 - redis.call('EXISTS', hidden_key)
  redis.call('ZADD', hidden_key, ends > 0 and digits(ends) or '+inf', user)
  redis.call('HSET', private_key, user, digits(ends) .. ' ' .. note)
  seen = (not invisible or number == -at) and 1 or 0
  if not invisible then
    leave()
  end
else
  fresh = says_something and 1 - redis.call('EXISTS', details_key) or 0
  if invisible then
    redis.call('ZADD', hidden_key, digits(at), user)
  end
  if private then
    redis.call('HDEL', private_key, user)
  end
  save_public()
end

-- Deletes what ended long ago: hidden times, and without a feed what users say.
local function tidy()
  local past = math.min(now, at)
  drop_hidden(hidden_key, private_key, past, 100, uses_key)
  if not had_feed then
    delete_ended(past, 100)
  end
end

tidy()
redis.call('ZADD', uses_key, 'XX', 'GT', digits(now), user)
local exists = redis.call('EXISTS', key) == 1
local created = not existed and (exists or availability ~= 'invisible' and says_something)
return {created and 1 or 0, redis.call('ZSCORE', key, user), fresh, had_feed and 0 or 1, seen}
