-- Changes calls. It follows calls.lua in the scripts that do.

-- Returns until when the details of some users have to say that the user is in a call: user, until, user, until, …; 0
-- for not.
local function copies_of(users)
  if not users[1] then
    return {}
  end
  local calls, copies = load_actives(redis.call('HMGET', users_key, unpack(users))), {}
  for i, user in ipairs(users) do
    local c = calls[i]
    local active = c and c.state == 'active' and (user == c.from or user == c.to)
    copies[#copies + 1] = user
    copies[#copies + 1] = time_text(active and c.shown_until or 0)
  end
  return copies
end

-- The users whose details have to be copied, each once.
local noted, is_noted = {}, {}
local function note(users)
  for _, user in ipairs(users) do
    if not is_noted[user] then
      is_noted[user] = true
      noted[#noted + 1] = user
    end
  end
end

local function note_parties(c)
  note({c.from, c.to})
end

-- Puts them into the outbox, and returns what has to be copied. It comes last in a script, but for drop_if_none.
local function note_all()
  local scores, stamp = {}, time_text(now)
  for _, user in ipairs(noted) do
    scores[#scores + 1] = stamp
    scores[#scores + 1] = user
  end
  if noted[1] then
    redis.call('ZADD', outbox_key, unpack(scores))
  end
  return copies_of(noted)
end

local function write_call(c)
  redis.call('HSET', calls_key, c.id, format_call(c))
end

-- Writes when an ongoing call expires.
local function write_due(c)
  redis.call('ZADD', due_key, time_text(c.due), c.id)
end

-- Writes active calls after some of their parties were active: see load_actives. When they expire is written only of
-- those that are renewed: that is late enough, because callexpire.lua looks at the call.
local function write_active(calls, renewed)
  local texts, due = {}, {}
  for _, c in ipairs(calls) do
    texts[#texts + 1] = c.id
    texts[#texts + 1] = c.text and c.before .. time_text(c.due) .. ' ' .. time_text(c.from_active) .. ' ' ..
      time_text(c.to_active) .. ' ' .. time_text(c.timeout) .. ' ' .. time_text(c.shown_until) ..
      string.sub(c.text, c.after) or format_call(c)
    if renewed[c.id] then
      due[#due + 1] = time_text(c.due)
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

-- Deletes what only ongoing calls have.
local function leave_call(c)
  redis.call('HDEL', apps_key, c.id)
  redis.call('ZREM', due_key, c.id)
  for _, user in ipairs({c.from, c.to}) do
    if redis.call('HGET', users_key, user) == c.id then
      redis.call('HDEL', users_key, user)
    end
  end
  if c.caller_only and redis.call('HGET', users_key, c.to .. '\0') == c.id then
    redis.call('HDEL', users_key, c.to .. '\0')
  end
end

-- Ends a call in a state, at a time of this Redis.
local function finish_call(c, state, over)
  if c.shown_until > 0 then
    note_parties(c)
  end
  c.state, c.version, c.over, c.due, c.shown_until = state, c.version + 1, over, 0, 0
  leave_call(c)
  redis.call('ZADD', over_key, time_text(logical + calls_kept), c.id)
  write_call(c)
end

-- Ends a call whose time passed.
local function expire_call(c)
  c.by, c.by_device = '', ''
  finish_call(c, expired_states[c.state], time_of(c.due))
end

-- Records that a party of an active call was active, and reports whether its parties are noted, because less than half
-- of the timeout is left until the end in their details: servers send four keepalives in it.
local function record_alive(c, user)
  if user == c.from then
    c.from_active = logical
  else
    c.to_active = logical
  end
  c.due = math.min(c.from_active, c.to_active) + c.timeout
  local ends = time_of(c.due)
  local moved = ends - c.shown_until
  local late = moved > 0 and c.shown_until - now < c.timeout / 2
  if not c.shown or not (late or moved <= -c.timeout / 4) then -- the latter if the clock was set back
    return false
  end
  c.shown_until = ends
  note_parties(c)
  return true
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

-- Has all keys exist while a call is kept. Those of earlier versions can exist without the empty field or member.
local function keep_keys()
  if redis.call('EXISTS', unpack(KEYS)) == #KEYS and redis.call('HEXISTS', apps_key, '') == 1 then
    return
  end
  for i = 2, #KEYS do
    if counts[i] == 'HLEN' then
      redis.call('HSET', KEYS[i], '', '')
    else
      redis.call('ZADD', KEYS[i], KEYS[i] == index_key and '0' or 'inf', '')
    end
  end
end

-- Deletes everything but what is to be copied, if no call is kept. A script that has done so may not use the keys after
-- that: Redis would refuse it while the slot moves.
local function drop_if_none()
  if redis.call('HLEN', calls_key) - redis.call('HEXISTS', calls_key, ':clock') == 0 then
    redis.call('UNLINK', calls_key, apps_key, due_key, over_key, users_key, keys_key, index_key)
    redis.call('ZREM', outbox_key, '')
    return true
  end
  return false
end

-- Returns a step of a call: whether it expired before, the call, and how the step ended.
local function step_reply(c, outcome, expired)
  return {expired and 1 or 0, view(c), outcome}
end
