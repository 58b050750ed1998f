-- What the scripts of calls share; it is prepended to each, after the limits of package store, clock.lua and
-- callrule.lua. See docs/decisions/calls.md.
--
-- KEYS[1]  the calls of a namespace: a hash, field = ID. The field :clock has the clock of calls: the time of this Redis
--          when it was last moved, and what it shows
-- KEYS[2]  what apps say in them: a hash, field = ID; only of calls that go on
-- KEYS[3]  when they expire, by the clock of calls: a sorted set of the IDs of calls that go on
-- KEYS[4]  when those that are over are deleted, by the clock of calls: a sorted set of IDs
-- KEYS[5]  the calls that go on: a hash, field = user, value = ID. The field of a user and a NUL has the call that rings
--          for its caller alone, because the callee, who is hidden, is in another call
-- KEYS[6]  the outbox, whose details have to be copied: a sorted set of users, the score is when that was noted
-- KEYS[7]  idempotency keys: a hash, field = the caller, a NUL, the key; value = ID, space, digest
-- KEYS[8]  whose calls are kept: a sorted set of members with score 0: the user, a NUL, f for the caller or t for the
--          callee, the ID
--
-- A call is text: lines of values, the key to the end. Times are in milliseconds. Those of the first line are, in
-- order, when it was created, accepted and over, by the clock of this Redis; when it expires, and when the caller and
-- the callee were last heard, by the clock of calls; for how long a party need not be heard; until when the details of
-- the parties say that they are in the call. Each is 0 for none. The flags are s if the parties are shown to be in the
-- call, and u if the callee is not a party. The nonce is that of the last step: a step that the client sends again is
-- done once.
--
--   <state> <version> <8 times> -<flags> <nonce>
--   <caller>
--   <callee>
--   <device of the caller>
--   <device of the callee>
--   <who led to the state>
--   <on which device>
--   <idempotency key>

local calls_key, apps_key, due_key, over_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local users_key, outbox_key, keys_key, index_key = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local max_call_text = 4096 -- bytes; more than any has
local max_call_digits = 15

-- A key of another type is an error before anything is written.
for i, command in ipairs({'HLEN', 'HLEN', 'ZCARD', 'ZCARD', 'HLEN', 'ZCARD', 'HLEN', 'ZCARD'}) do
  redis.call(command, KEYS[i])
end

-- A call that another program wrote, if there is one. It counts as none.
local unreadable

-- Formatting is slow, and the times of the calls of a batch are often equal.
local formatted = {}
local function call_digits(number)
  local text = formatted[number]
  if not text then
    text = string.format('%.0f', number)
    formatted[number] = text
  end
  return text
end

-- One pattern and one concatenation: of what a call costs, most is this.
local call_text = '^(%l+)' .. string.rep(' (%d+)', 9) .. ' %-(%l*) (%w+)' .. string.rep('\n([^\n]*)', 6) .. '\n(.*)$'
local call_head = '%s' .. string.rep(' %.0f', 9) .. ' -%s %s\n'

-- Returns a call as a table, nil if another program wrote the text.
local function parse_call(id, text)
  if not text or #text > max_call_text then
    return nil
  end
  local state, version, created, accepted, over, due, from_heard, to_heard, quiet, shown_until, flags, nonce,
    from, to, from_device, to_device, by, by_device, key = string.match(text, call_text)
  if not state or not call_steps[state] or from == '' or to == '' or from == to or
    math.max(#version, #created, #accepted, #over, #due, #from_heard, #to_heard, #quiet, #shown_until) >
    max_call_digits then
    return nil
  end
  return {
    id = id, state = state, version = tonumber(version), created = tonumber(created), accepted = tonumber(accepted),
    over = tonumber(over), due = tonumber(due), from_heard = tonumber(from_heard), to_heard = tonumber(to_heard),
    quiet = tonumber(quiet), shown_until = tonumber(shown_until), nonce = nonce, from = from, to = to,
    from_device = from_device, to_device = to_device, by = by, by_device = by_device, key = key,
    shown = string.find(flags, 's', 1, true) ~= nil, unreachable = string.find(flags, 'u', 1, true) ~= nil,
  }
end

-- The reverse of parse_call.
local function format_call(c)
  local head = string.format(call_head, c.state, c.version, c.created, c.accepted, c.over, c.due, c.from_heard,
    c.to_heard, c.quiet, c.shown_until, (c.shown and 's' or '') .. (c.unreachable and 'u' or ''), c.nonce)
  return head .. c.from .. '\n' .. c.to .. '\n' .. c.from_device .. '\n' .. c.to_device .. '\n' .. c.by .. '\n' ..
    c.by_device .. '\n' .. c.key
end

-- An active call has in its text what hearing a party reads and changes, between what stays. Parsing and formatting
-- only that takes a third of the time. Of the times that stay, only the places are captured: the space after each
-- counts.
local active_text = '^(active (%d+) ' .. string.rep('()%d+ ', 3) .. '())' .. string.rep('(%d+) ', 4) .. '(%d+)' ..
  '() %-(%l*) %w+\n([^\n]+)\n([^\n]+)\n([^\n]*)\n([^\n]*)\n[^\n]*\n[^\n]*\n'

-- Returns an active call as a table with some of the fields; nil for another call, or a text that has to be looked at.
local function parse_active(id, text)
  if not text or #text > max_call_text then
    return nil
  end
  local before, version, created_at, accepted_at, over_at, due_at, due, from_heard, to_heard, quiet, shown_until,
    after, flags, from, to, from_device, to_device = string.match(text, active_text)
  if not before or from == to then
    return nil
  end
  local longest_kept = math.max(accepted_at - created_at, over_at - accepted_at, due_at - over_at) - 1
  if math.max(longest_kept, #version, #due, #from_heard, #to_heard, #quiet, #shown_until) > max_call_digits then
    return nil
  end
  return {
    id = id, state = 'active', version = tonumber(version), due = tonumber(due), from_heard = tonumber(from_heard),
    to_heard = tonumber(to_heard), quiet = tonumber(quiet), shown_until = tonumber(shown_until), from = from, to = to,
    from_device = from_device, to_device = to_device, shown = string.find(flags, 's', 1, true) ~= nil,
    text = text, before = before, after = after,
  }
end

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

-- Returns what the clock of calls shows. It goes on while it is watched, and no faster than the clock of this Redis. If
-- another program wrote it, the next calls expire soon.
local function call_clock()
  local text = redis.call('HGET', calls_key, ':clock')
  local last, shown = string.match(text or '', '^(%d+) (%d+)$')
  if last and #last <= max_call_digits and #shown <= max_call_digits then
    return tonumber(shown) + math.min(math.max(now - tonumber(last), 0), max_call_gap)
  end
  local first = redis.call('ZRANGE', due_key, 0, 0, 'WITHSCORES')[2] or
    redis.call('ZRANGE', over_key, 0, 0, 'WITHSCORES')[2]
  return math.min(math.max(math.floor(tonumber(first or 0)), 0), 10 ^ max_call_digits - 1)
end

local logical = call_clock()

-- Every script that writes calls moves the clock.
local function save_clock()
  redis.call('HSET', calls_key, ':clock', call_digits(now) .. ' ' .. call_digits(logical))
end

-- Has a script write also when memory is full: one that has called a writing command can.
local function write_when_full()
  redis.call('ZREM', due_key, '')
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

-- Returns until when the details of some users have to say that the user is in a call, as text; 0 for not.
local function in_calls_until(users)
  if not users[1] then
    return {}
  end
  local calls, ends = load_actives(redis.call('HMGET', users_key, unpack(users))), {}
  for i, user in ipairs(users) do
    local c = calls[i]
    local active = c and c.state == 'active' and (user == c.from or user == c.to)
    ends[i] = call_digits(active and c.shown_until or 0)
  end
  return ends
end

-- Returns users and their values: user, value, user, value.
local function with_values(users, values)
  local all = {}
  for i, user in ipairs(users) do
    all[#all + 1] = user
    all[#all + 1] = values[i]
  end
  return all
end

-- Notes that the details of some users have to be copied, and returns them: user, until, user, until. Ends are what
-- in_calls_until returns of these users.
local function note_users(users, ends)
  local scores, stamp = {}, call_digits(now)
  for _, user in ipairs(users) do
    scores[#scores + 1] = stamp
    scores[#scores + 1] = user
  end
  if users[1] then
    redis.call('ZADD', outbox_key, unpack(scores))
  end
  return with_values(users, ends)
end

-- Notes that the details of the parties have to be copied, and returns them: user, until, user, until.
local function note_parties(c)
  local users = {c.from, c.to}
  return note_users(users, in_calls_until(users))
end

local function write_call(c)
  redis.call('HSET', calls_key, c.id, format_call(c))
end

-- Writes when a call that goes on expires.
local function write_due(c)
  redis.call('ZADD', due_key, call_digits(c.due), c.id)
end

-- Writes active calls after some of their parties were heard: see load_actives. When they expire is written only of
-- those that are renewed: that is late enough, because callexpire.lua looks at the call.
local function write_heard(calls, renewed)
  local texts, due = {}, {}
  for _, c in ipairs(calls) do
    texts[#texts + 1] = c.id
    texts[#texts + 1] = c.text and c.before .. call_digits(c.due) .. ' ' .. call_digits(c.from_heard) .. ' ' ..
      call_digits(c.to_heard) .. ' ' .. call_digits(c.quiet) .. ' ' .. call_digits(c.shown_until) ..
      string.sub(c.text, c.after) or format_call(c)
    if renewed[c.id] then
      due[#due + 1] = call_digits(c.due)
      due[#due + 1] = c.id
    end
  end
  if calls[1] then
    redis.call('HSET', calls_key, unpack(texts))
  end
  if due[1] then
    redis.call('ZADD', due_key, unpack(due))
  end
end

-- Deletes what only calls that go on have.
local function leave_call(c)
  redis.call('HDEL', apps_key, c.id)
  redis.call('ZREM', due_key, c.id)
  for _, user in ipairs({c.from, c.to}) do
    if redis.call('HGET', users_key, user) == c.id then
      redis.call('HDEL', users_key, user)
    end
  end
  if c.unreachable and redis.call('HGET', users_key, c.to .. '\0') == c.id then
    redis.call('HDEL', users_key, c.to .. '\0')
  end
end

-- Ends a call in a state, at a time of this Redis. Returns what has to be copied.
local function finish_call(c, state, over)
  local was_shown = c.shown_until > 0
  c.state, c.version, c.over, c.due, c.shown_until = state, c.version + 1, over, 0, 0
  leave_call(c)
  redis.call('ZADD', over_key, call_digits(logical + calls_kept), c.id)
  write_call(c)
  return was_shown and note_parties(c) or {}
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

-- Ends a call whose time passed. Returns what has to be copied.
local function expire_call(c)
  c.by, c.by_device = '', ''
  return finish_call(c, expired_states[c.state], time_of(c.due))
end

-- Returns when one of the parties is likely to be heard next. One is heard now, and was heard before at one time; the
-- other was last heard at another. Servers hear parties three times in the quiet time, or as seldom as this one.
local function next_hearing(c, before, other)
  local period = math.max(c.quiet / 3, logical - before)
  return other + period > logical and other + period or logical + period
end

-- Records that a party of an active call was heard, and reports whether the parties have to be copied: if at the next
-- hearing no more than a sixth of the quiet time would be left until the end in their details.
local function move_due(c, user)
  local before, other = c.from_heard, c.to_heard
  if user == c.from then
    c.from_heard = logical
  else
    before, other = other, before
    c.to_heard = logical
  end
  c.due = math.min(logical, other) + c.quiet
  local ends = time_of(c.due)
  local moved, left = ends - c.shown_until, c.shown_until - time_of(next_hearing(c, before, other))
  local late, set_back = left * 6 <= c.quiet, moved <= -c.quiet / 4 -- the clock of this Redis was set back
  if not c.shown or moved == 0 or not (late or set_back) then
    return false
  end
  c.shown_until = ends
  return true
end

-- The same, but notes the parties and returns what has to be copied.
local function hear_party(c, user)
  return move_due(c, user) and note_parties(c) or {}
end

-- Deletes a call, and all that is kept about it.
local function remove_call(c)
  leave_call(c)
  redis.call('HDEL', calls_key, c.id)
  redis.call('ZREM', over_key, c.id)
  redis.call('ZREM', index_key, c.from .. '\0f' .. c.id, c.to .. '\0t' .. c.id)
  local field = c.from .. '\0' .. c.key
  if c.key ~= '' and string.match(redis.call('HGET', keys_key, field) or '', '^%S*') == c.id then
    redis.call('HDEL', keys_key, field)
  end
  loaded[c.id] = false
end

-- Deletes a call that another program wrote.
local function remove_unreadable(id)
  redis.call('HDEL', calls_key, id)
  redis.call('HDEL', apps_key, id)
  redis.call('ZREM', due_key, id)
  redis.call('ZREM', over_key, id)
end

-- How many calls are kept. The clock is not one.
local function count_calls()
  return math.max(0, redis.call('HLEN', calls_key) - 1)
end

-- Deletes everything but the outbox, if no call is kept.
local function drop_if_none()
  if redis.call('HLEN', calls_key) - redis.call('HEXISTS', calls_key, ':clock') == 0 then
    redis.call('UNLINK', calls_key, apps_key, due_key, over_key, users_key, keys_key, index_key)
    return true
  end
  return false
end

-- Returns a call as callers get it: ID, text, when it expires by the clock of this Redis, and what the app says.
local function view(c)
  if not goes_on(c) then
    return {c.id, format_call(c), '0', ''}
  end
  return {c.id, format_call(c), call_digits(time_of(c.due)), redis.call('HGET', apps_key, c.id) or ''}
end

-- Returns a step of a call: whether it expired before, the call, how the step ended, and what has to be copied.
local function step_reply(c, outcome, expired, noted)
  return {expired and 1 or 0, view(c), outcome, noted}
end

