-- What leaves out the assertions about users in a hidden time. The rule is that of HiddenTime of package lastseen.
--
-- hidden_key   the ends of hidden times: a sorted set, the score of a user is when the hidden time ends, or +inf
-- private_key  what invisible users say: a hash, field = user, value = when the hidden time ends, or 0, a space and the note;
--              without a field, or if the value is the end alone, the user has ended the hidden time

-- Returns the score of a sorted set as a number.
local function number_of(score)
  return score == 'inf' and math.huge or tonumber(score)
end

-- Reports whether a user has ended the hidden time, given the field of private_key.
local function is_ended(private)
  return not private or string.find(private, '^%d+$') ~= nil
end

-- Returns since when an item of devices.lua says that a device is idle, as text; nil if it is not.
local function idle_of(report)
  return string.sub(report, -3) ~= ' 0 ' and string.match(report, ' (%d+) $') or nil
end

-- Returns which of some items are hidden, by their place in the list of users; nil if none is. The times of the items
-- are in ARGV: from first on, one every step. Items of devices that are not hidden, but idle since a time that is, become
-- idle since their own time.
local function find_hidden(users, first, step, devices)
  local now, ends, privates = clock(), redis.call('ZMSCORE', hidden_key, unpack(users)), nil
  local function hides(i, time)
    local stop = ends[i] and number_of(ends[i])
    if not stop or math.min(time, now) >= stop then
      return false
    end
    -- If the user has ended it, one of the clocks is wrong, perhaps by a moment only.
    privates = privates or private_key and redis.call('HMGET', private_key, unpack(users)) or {}
    return not is_ended(privates[i]) or stop <= now + max_ahead and time < stop
  end
  local hidden
  for i = 1, #users do
    local at = first + (i - 1) * step
    local idle = devices and idle_of(ARGV[at + 2])
    if hides(i, math.abs(tonumber(ARGV[at]))) then
      hidden = hidden or {}
      hidden[i] = true
    elseif idle and hides(i, tonumber(idle)) then
      ARGV[at + 2] = string.sub(ARGV[at + 2], 1, -#idle - 2) .. ARGV[at] .. ' '
    end
  end
  return hidden
end

-- Reports whether any user is in a hidden time that may concern these items. Nearly every call finds that none is.
local function may_hide(first, past, step, devices)
  local earliest, text = clock(), nil
  for i = first, past - 1, step do
    local idle = devices and idle_of(ARGV[i + 2])
    if idle then
      earliest = math.min(earliest, tonumber(idle))
    end
    if ARGV[i] ~= text then -- most times of a call are the same
      text = ARGV[i]
      earliest = math.min(earliest, math.abs(tonumber(text)))
    end
  end
  return redis.call('ZCOUNT', hidden_key, '(' .. string.format('%.0f', earliest), '+inf') > 0
end

-- Calls write with the arguments that are left without what is hidden, and returns its reply; if something is hidden,
-- with the scores of all users, without a previous score, and with a sixth element, 1. Without items it does not call
-- it. The items begin at first, and have step arguments, of which the time and the user are the first. Those of
-- devices.lua end before past: before them is how many they are, after them are metas with the numbers of items.
local function hide(write, first, step, past)
  local stop = past or #ARGV + 1
  if not may_hide(first, stop, step, past) then
    return write(ARGV)
  end
  local users = {}
  for i = first + 1, stop - 1, step do
    users[#users + 1] = ARGV[i]
  end
  local hidden = find_hidden(users, first, step, past)
  if not hidden then
    return write(ARGV)
  end
  local kept, numbers, count = {unpack(ARGV, 1, first - 1)}, {}, 0
  for i = 1, #users do
    if not hidden[i] then
      count = count + 1
      numbers[i] = count
      for j = 0, step - 1 do
        kept[#kept + 1] = ARGV[first + (i - 1) * step + j]
      end
    end
  end
  if past then
    kept[first - 1] = count
    for i = past, #ARGV, 2 do
      local number = numbers[tonumber(ARGV[i])]
      if number then
        kept[#kept + 1] = number
        kept[#kept + 1] = ARGV[i + 1]
      end
    end
  end
  local reply = count > 0 and write(kept) or {0}
  return {reply[1], redis.call('ZMSCORE', KEYS[1], unpack(users)), false, reply[4] or 0, reply[5] or false, 1}
end

