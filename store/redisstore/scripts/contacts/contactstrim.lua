-- Deletes the contacts of owners whose last use is longer ago than an age, up to a limit. The age is measured by the
-- current clock of this Redis. It also gives owners that have no last use the present, some in each call: an older
-- lastseen wrote their contacts. It follows feed.lua and hidden.lua.
--
-- KEYS     see sides.lua, hidden.lua and contacts.lua; uses_key is named although it may not exist
-- ARGV[1]  see feed.lua
-- ARGV[2]  the age in milliseconds
-- ARGV[3]  what the caller expects the clock to show, in milliseconds
-- ARGV[4]  how far the clock may be from that, in milliseconds
-- ARGV[5]  how many owners to look at, at most; with 0 they are only counted
-- ARGV[6]  how many contacts to delete, at most
-- ARGV[7]  '1' to delete them also if no contacts are left afterwards
-- ARGV[8]  how many owners to give a last use, at most
-- ARGV[9]  the owner after which they begin; '' for the first one
--
-- Returns {due, owners, contacts, held, more, now, position}: due is how many owners to look at there were, owners and
-- contacts are how many were deleted, held is 1 if contacts were kept because none would be left, more is 1 if a limit
-- was reached, and position is the last owner that was given a last use, '' after the last one. When the clock is not
-- where it is expected, due is -1 and now is the time in milliseconds; nothing changed.

local key, contacts, uses = KEYS[1], contacts_key, uses_key
local now, limit, room = clock(), tonumber(ARGV[5]), tonumber(ARGV[6])
if math.abs(now - ARGV[3]) > tonumber(ARGV[4]) then
  return {-1, 0, 0, 0, 0, now, ''}
end
-- A clock that is behind must not make contacts look old: see contacts.lua.
local newest = tonumber(redis.call('ZRANGE', uses, -1, -1, 'WITHSCORES')[2])
local present = string.format('%.0f', math.max(now, newest or 0))

local function bounds(owner)
  return '[' .. owner .. '\0', '(' .. owner .. '\1'
end

-- Gives the next owners a last use, unless they have one, and returns the last one of them.
local function find_owners(last, most)
  local found = {}
  for i = 1, most do
    local start = last == '' and '-' or '(' .. last .. '\1'
    local member = redis.call('ZRANGE', contacts, start, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not member then
      return found, ''
    end
    last = string.match(member, '^[^%z]*')
    found[#found + 1] = present
    found[#found + 1] = last
  end
  return found, last
end

-- Divides owners by their last use: those whose contacts can be deleted, and others with the newer time that is known
-- now. Invisible users use the service until their hidden time ends.
local function divide(owners, cutoff)
  local stale, raised = {}, {}
  local seen = redis.call('ZMSCORE', key, unpack(owners))
  local ends = hidden_key and redis.call('ZMSCORE', hidden_key, unpack(owners)) or {}
  local privates = private_key and redis.call('HMGET', private_key, unpack(owners)) or {}
  for i, owner in ipairs(owners) do
    local used, stop = math.floor(math.abs(seen[i] or 0)), ends[i] and number_of(ends[i])
    if stop and (not is_ended(privates[i]) or stop <= now + max_ahead) then -- see find_hidden
      used = math.max(used, math.min(stop, now))
    end
    if used < cutoff then
      stale[#stale + 1] = owner
    else
      raised[#raised + 1] = string.format('%.0f', used)
      raised[#raised + 1] = owner
    end
  end
  return stale, raised
end

-- Deletes the contacts of owners, as far as there is room. It returns how many owners and contacts these were, and
-- whether all fit.
local function delete(owners)
  local deleted, count = 0, 0
  for _, owner in ipairs(owners) do
    local low, high = bounds(owner)
    local size = redis.call('ZLEXCOUNT', contacts, low, high)
    if count + size > room then
      return deleted, count, false
    end
    redis.call('ZREMRANGEBYLEX', contacts, low, high)
    redis.call('ZREM', uses, owner)
    if size > 0 then
      append_contacts(owner)
    end
    deleted, count = deleted + math.min(size, 1), count + size
  end
  return deleted, count, true
end

if not contacts then
  return {0, 0, 0, 0, 0, now, ''}
end
redis.call('ZREM', uses, '') -- a script that has called a writing command can add also when memory is full
local found, position = find_owners(ARGV[9], tonumber(ARGV[8]))
if found[1] then
  claim()
  redis.call('ZADD', uses, 'NX', unpack(found))
end
local cutoff = now - ARGV[2]
local bound = string.format('(%.0f', cutoff)
local due = cutoff >= 1 and redis.call('ZCOUNT', uses, '-inf', bound) or 0
if due == 0 or limit == 0 then
  return {due, 0, 0, 0, 0, now, position}
end
local stays = due < redis.call('ZCARD', uses)
local owners = redis.call('ZRANGE', uses, '-inf', bound, 'BYSCORE', 'LIMIT', 0, limit)
local stale, raised = divide(owners, cutoff)
if raised[1] then
  redis.call('ZADD', uses, 'XX', 'GT', unpack(raised))
end
if stale[1] and not (stays or raised[1] or ARGV[7] == '1') then
  return {due, 0, 0, 1, 0, now, position}
end
load_feed(now)
local deleted, count, all = delete(stale)
save_tip()
if redis.call('EXISTS', contacts) == 0 then
  redis.call('UNLINK', uses)
end
settle()
return {due, deleted, count, 0, (all and due <= limit) and 0 or 1, now, position}
