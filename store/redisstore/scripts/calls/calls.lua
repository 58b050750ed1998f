-- Reads the calls of a namespace. It comes first in each script of calls, after the limits of package store, clock.lua,
-- callrule.lua, timetext.lua and calltext.lua. See docs/decisions/calls.md.
--
-- KEYS[1]  the calls of a namespace: a hash, field = ID. The field :clock has the clock of calls: the time of this Redis
--          when it was last moved, and what it shows
-- KEYS[2]  what apps say in them: a hash, field = ID; only of ongoing calls
-- KEYS[3]  when they expire, by the clock of calls: a sorted set of the IDs of ongoing calls
-- KEYS[4]  when those that have ended are deleted, by the clock of calls: a sorted set of IDs
-- KEYS[5]  the ongoing calls: a hash, field = user, value = ID. The field of a user and a NUL has the call that rings
--          for its caller alone, because the callee, who is hidden, is in another call
-- KEYS[6]  the outbox, whose details have to be copied: a sorted set of users, the score is when that was noted
-- KEYS[7]  idempotency keys: a hash, field = the caller, a NUL, the key; value = ID, space, digest
-- KEYS[8]  whose calls are kept: a sorted set of members with score 0: the user, a NUL, f for the caller or t for the
--          callee, the ID
--
-- While calls are kept, all of these keys exist, because Redis refuses a script that names one which does not while its
-- slot moves: each has a field or member '', with the score inf, or 0 in KEYS[8].

local calls_key, apps_key, due_key, over_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local users_key, outbox_key, keys_key, index_key = KEYS[5], KEYS[6], KEYS[7], KEYS[8]

-- A key of another type is an error before anything is written.
local counts = {'HLEN', 'HLEN', 'ZCARD', 'ZCARD', 'HLEN', 'ZCARD', 'HLEN', 'ZCARD'}
for i, command in ipairs(counts) do
  redis.call(command, KEYS[i])
end

-- A call that another program wrote, if there is one. It counts as none.
local unreadable

-- Calls that were read, by ID: false for none.
local loaded = {}

local function keep_loaded(id, text)
  loaded[id] = parse_call(id, text) or false
  if text and not loaded[id] then
    unreadable = id
  end
end

local function load_call(id)
  if loaded[id] == nil then
    keep_loaded(id, redis.call('HGET', calls_key, id))
  end
  return loaded[id] or nil
end

-- Returns calls, of which those that are active may have some of the fields alone: see parse_active. Ids are IDs, or
-- false; so are the calls. A call has the same table each time.
local actives = {}
local function load_actives(ids)
  local missing, listed = {}, {}
  for _, id in ipairs(ids) do
    if id and not loaded[id] and not actives[id] and not listed[id] then
      missing[#missing + 1] = id
      listed[id] = true
    end
  end
  if missing[1] then
    for i, text in ipairs(redis.call('HMGET', calls_key, unpack(missing))) do
      local id = missing[i]
      actives[id] = parse_active(id, text)
      if not actives[id] then
        keep_loaded(id, text)
      end
    end
  end
  local calls = {}
  for i, id in ipairs(ids) do
    calls[i] = id and (loaded[id] or actives[id]) or false
  end
  return calls
end

local now = clock()

-- Returns the lowest score of a sorted set of times; nil for none.
local function first_time(key)
  return redis.call('ZRANGE', key, '-inf', '(inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
end

-- Returns what the clock of calls shows. It goes on while it is watched, and no faster than the clock of this Redis. If
-- another program wrote it, the next calls expire soon.
local function call_clock()
  local text = redis.call('HGET', calls_key, ':clock')
  local last, shown = string.match(text or '', '^(%d+) (%d+)$')
  if last and #last <= max_call_digits and #shown <= max_call_digits then
    return tonumber(shown) + math.min(math.max(now - tonumber(last), 0), max_call_gap)
  end
  local first = first_time(due_key) or first_time(over_key) or 0
  return math.min(math.max(math.floor(tonumber(first)), 0), 10 ^ max_call_digits - 1)
end

local logical = call_clock()

-- Every script that writes calls moves the clock.
local function save_clock()
  redis.call('HSET', calls_key, ':clock', time_text(now) .. ' ' .. time_text(logical))
end

-- Has a script write also when memory is full: one that has called a writing command can.
local function write_when_full()
  redis.call('ZREM', due_key, '\0')
end

-- How many calls are ongoing.
local function count_due()
  return redis.call('ZCOUNT', due_key, '-inf', '(inf')
end

local function goes_on(c)
  return expired_states[c.state] ~= nil
end

local function has_expired(c)
  return goes_on(c) and c.due <= logical
end

-- Returns the time of this Redis at which the clock of calls shows a time.
local function time_of(due)
  return math.max(0, now + due - logical)
end

-- Says how a call looks whose time passed, without writing it.
local function expired_call(c)
  local shown = {}
  for name, value in pairs(c) do
    shown[name] = value
  end
  shown.state, shown.version, shown.over, shown.due = expired_states[c.state], c.version + 1, time_of(c.due), 0
  shown.by, shown.by_device = '', ''
  return shown
end

-- Returns a call as callers get it: ID, text, when it expires by the clock of this Redis, and what the app says.
local function view(c)
  if not goes_on(c) then
    return {c.id, format_call(c), '0', ''}
  end
  return {c.id, format_call(c), time_text(time_of(c.due)), redis.call('HGET', apps_key, c.id) or ''}
end
