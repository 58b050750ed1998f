-- A call is text: lines of values, the key to the end. Times are in milliseconds. Those of the first line are, in
-- order, when it was created, accepted and over, by the clock of this Redis; when it expires, and when the caller and
-- the callee were last active, by the clock of calls; for how long a party need not be active; until when the details
-- of the parties say that they are in the call. Each is 0 for none. The flags are s if the parties are shown to be in
-- the call, and u if the callee is not a party. The nonce is that of the last step: a step that the client sends again
-- is done once.
--
--   <state> <version> <8 times> -<flags> <nonce>
--   <caller>
--   <callee>
--   <device of the caller>
--   <device of the callee>
--   <who led to the state>
--   <on which device>
--   <idempotency key>

local max_call_text = 4096 -- bytes; more than any has
local max_call_digits = 15

-- One pattern and one concatenation: of what a call costs, most is this.
local call_text = '^(%l+)' .. string.rep(' (%d+)', 9) .. ' %-(%l*) (%w+)' .. string.rep('\n([^\n]*)', 6) .. '\n(.*)$'
local call_head = '%s' .. string.rep(' %.0f', 9) .. ' -%s %s\n'

-- Returns a call as a table, nil if another program wrote the text.
local function parse_call(id, text)
  if not text or #text > max_call_text then
    return nil
  end
  local state, version, created, accepted, over, due, from_active, to_active, timeout, shown_until, flags, nonce,
    from, to, from_device, to_device, by, by_device, key = string.match(text, call_text)
  if not state or not call_steps[state] or from == '' or to == '' or from == to or
    math.max(#version, #created, #accepted, #over, #due, #from_active, #to_active, #timeout, #shown_until) >
    max_call_digits then
    return nil
  end
  return {
    id = id, state = state, version = tonumber(version), created = tonumber(created), accepted = tonumber(accepted),
    over = tonumber(over), due = tonumber(due), from_active = tonumber(from_active), to_active = tonumber(to_active),
    timeout = tonumber(timeout), shown_until = tonumber(shown_until), nonce = nonce, from = from, to = to,
    from_device = from_device, to_device = to_device, by = by, by_device = by_device, key = key,
    shown = string.find(flags, 's', 1, true) ~= nil, caller_only = string.find(flags, 'u', 1, true) ~= nil,
  }
end

-- The reverse of parse_call.
local function format_call(c)
  local head = string.format(call_head, c.state, c.version, c.created, c.accepted, c.over, c.due, c.from_active,
    c.to_active, c.timeout, c.shown_until, (c.shown and 's' or '') .. (c.caller_only and 'u' or ''), c.nonce)
  return head .. c.from .. '\n' .. c.to .. '\n' .. c.from_device .. '\n' .. c.to_device .. '\n' .. c.by .. '\n' ..
    c.by_device .. '\n' .. c.key
end

-- An active call has in its text what a keepalive reads and changes, between what stays. Parsing and formatting
-- only that takes a third of the time. Of the times that stay, only the places are captured: the space after each
-- counts.
local active_text = '^(active (%d+) ' .. string.rep('()%d+ ', 3) .. '())' .. string.rep('(%d+) ', 4) .. '(%d+)' ..
  '() %-(%l*) %w+\n([^\n]+)\n([^\n]+)\n([^\n]*)\n([^\n]*)\n[^\n]*\n[^\n]*\n'

-- Returns an active call as a table with some of the fields; nil for another call, or a text that has to be looked at.
local function parse_active(id, text)
  if not text or #text > max_call_text then
    return nil
  end
  local before, version, created_at, accepted_at, over_at, due_at, due, from_active, to_active, timeout, shown_until,
    after, flags, from, to, from_device, to_device = string.match(text, active_text)
  if not before or from == to then
    return nil
  end
  local longest_kept = math.max(accepted_at - created_at, over_at - accepted_at, due_at - over_at) - 1
  if math.max(longest_kept, #version, #due, #from_active, #to_active, #timeout, #shown_until) > max_call_digits then
    return nil
  end
  return {
    id = id, state = 'active', version = tonumber(version), due = tonumber(due), from_active = tonumber(from_active),
    to_active = tonumber(to_active), timeout = tonumber(timeout), shown_until = tonumber(shown_until), from = from,
    to = to, from_device = from_device, to_device = to_device, shown = string.find(flags, 's', 1, true) ~= nil,
    text = text, before = before, after = after,
  }
end
