-- Records a user's availability. It is after a function leave_devices, which does what devices.lua does.
--
-- KEYS     see feed.lua, records.lua, details.lua, hidden.lua, and contacts.lua for uses_key. Of what is written the
-- keys are
--          named although they may not exist: those of details and ends, or those of hidden.lua for an invisible user
-- ARGV[1]  see feed.lua
-- ARGV[2]  the present, in milliseconds
-- ARGV[3]  the user
-- ARGV[4]  away, busy or invisible; '' for neither
-- ARGV[5]  the note
-- ARGV[6]  when this ends, in milliseconds; 0 if it does not
--
-- Returns {created, score}: created is 1 if the namespace did not exist before and does now.

local key, user, availability, note = KEYS[1], ARGV[3], ARGV[4], ARGV[5]
local now, time, ends = clock(), ARGV[2], tonumber(ARGV[6])
if tonumber(time) > now + max_ahead then
  time = digits(now) -- whatever the caller's clock shows
end
local at = tonumber(time)
if ends ~= 0 and ends <= at then
  availability, note = '', ''
end
local has_content = availability ~= '' or note ~= ''
if not has_content then
  ends = 0
end

-- A key of another type is an error before anything is written.
local function read(command, from)
  return from and redis.call(command, from, user)
end
local score, text = read('ZSCORE', key), read('HGET', details_key) or ''
local stop, private = read('ZSCORE', hidden_key), read('HGET', private_key)
local existed, number = redis.call('EXISTS', key) == 1, score and tonumber(score)
read('ZSCORE', ends_key)
read('ZSCORE', uses_key)
local invisible = stop and number_of(stop) > at and not is_ended(private)
local had_feed = feed_key and redis.call('EXISTS', feed_key) == 1
claim()

-- Records a leave on all devices: at the present, or at the user's time if that is later.
local function leave()
  local size = math.floor(math.abs(number or 0))
  if size > at then
    time = digits(size)
  end
  if size > latest_time then
    return -- another program wrote it
  elseif records_key then
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
    save_details({user, new})
  end
  load_feed(now)
  save_end(user, details)
  if feed then
    append_details(user, number, text, new)
    save_tip()
  end
end

if availability == 'invisible' then
  redis.call('ZADD', hidden_key, ends > 0 and digits(ends) or '+inf', user)
  redis.call('HSET', private_key, user, digits(ends) .. ' ' .. note)
  mark_hidden()
  if not invisible then
    leave()
  end
else
  if invisible then
    redis.call('ZADD', hidden_key, digits(at), user)
    redis.call('HSET', private_key, user, digits(at))
    mark_hidden()
  end
  save_public()
end

-- Deletes what ended long ago: hidden times, and without a feed the availability of users.
local past = math.min(now, at)
if hidden_key then
  drop_hidden(past, 100, uses_key)
end
if not had_feed then
  delete_ended(past, 100)
end
if uses_key then
  redis.call('ZREM', uses_key, '') -- a script that has called a writing command can add also when memory is full
  redis.call('ZADD', uses_key, 'XX', 'GT', digits(now), user)
end
local exists = redis.call('EXISTS', key) == 1
local created = not existed and (exists or availability ~= 'invisible' and has_content)
settle()
return {created and 1 or 0, redis.call('ZSCORE', key, user)}
