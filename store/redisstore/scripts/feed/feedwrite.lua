-- Records that users were seen, or left, and appends what changed to the feed. The result is that of writeplain.lua,
-- which is for shards without a feed.
--
-- KEYS     see feed.lua and details.lua
-- ARGV[1]  see feed.lua
-- ARGV[2]  the latest of the times that follow, in milliseconds
-- ARGV[3]  1 for users who left
-- ARGV[4]  1 to return the previous score of the first user
-- ARGV     then time, user, time, user, …: each user once, at most 512 of them
--
-- Returns {created, scores, previous, missing}: see writeplain.lua; missing is 1 if there is no feed.

local key, now, leaving = KEYS[1], clock(), ARGV[3] == '1'
load_feed(now)

-- Times too far ahead are replaced by the time of this Redis, whatever the caller's clock shows.
local bound = now + max_ahead
local replaced = tonumber(ARGV[2]) > bound
local users = {}
for i = 6, #ARGV, 2 do
  users[#users + 1] = ARGV[i]
end
local before = redis.call('ZMSCORE', key, unpack(users))

-- Reports whether all users are published as green. They stay green, so pings change their times alone. Nearly every
-- call is like this.
local function all_green()
  local lowest = math.max(0, feed.watermark - feed.green)
  for i = 1, #users do
    local score = tonumber(before[i] or 0)
    if score <= lowest or score > latest_time then
      return false
    end
  end
  return true
end

if feed and not leaving and not replaced and all_green() then
  local all = redis.call('ZADD', key, 'GT', 'CH', unpack(ARGV, 5)) == #users
  return {0, not all and redis.call('ZMSCORE', key, unpack(users)), ARGV[4] == '1' and before[1], 0}
end

local times = {}
for i = 5, #ARGV, 2 do
  times[#times + 1] = replaced and tonumber(ARGV[i]) > bound and digits(now) or ARGV[i]
end

-- The later time wins, and leaving does at the same time. Scores beyond any time stay as they are. Most times of a call
-- are the same, and are converted once.
local after, add, changes, known = {}, {}, {}, false
local text, at, score, status
for i = 1, #users do
  if times[i] ~= text then
    text = times[i]
    at, score = tonumber(text), leaving and '-' .. text or text
    status = feed and published(leaving and -at or at)
  end
  local old = before[i] and tonumber(before[i])
  known = known or old
  if not old or old > -at and (old < at or leaving and old == at) then
    after[i] = score
    add[#add + 1] = score
    add[#add + 1] = users[i]
    local was = feed and published(old)
    if feed and was ~= status and differs(was, status) then
      changes[#changes + 1] = {users[i], was, status, text}
    end
  else
    after[i] = before[i]
  end
end
local created = known and 0 or 1 - redis.call('EXISTS', key)
if #add > 0 then
  redis.call('ZADD', key, unpack(add))
end
-- Adds the details that were published before, and are after. Lua can pass as many users to one command.
if details_key and changes[1] then
  local names = {}
  for i, change in ipairs(changes) do
    names[i] = change[1]
  end
  for i, text in ipairs(redis.call('HMGET', details_key, unpack(names))) do
    local change = changes[i]
    change[5] = published_details(text, change[2], feed.watermark)
    change[6] = published_details(text, change[3], feed.watermark)
  end
end
for _, change in ipairs(changes) do
  append(unpack(change))
end
save_tip()
local all = #add == 2 * #users and not replaced
return {created, not all and after, ARGV[4] == '1' and before[1], feed and 0 or 1}
