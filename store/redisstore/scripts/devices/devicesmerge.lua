-- How what a device asserts changes the records of a user. The helpers are within the function, since Lua makes them
-- only if it is called. Returns merge.
local function merger()
  -- Adds a record where it belongs: the newest first, and at one time by ID.
  local function insert(records, new)
    local i = #records
    while i > 0 and (new.at > records[i].at or new.at == records[i].at and before(new.id, records[i].id)) do
      records[i + 1] = records[i]
      i = i - 1
    end
    records[i + 1] = new
  end

  -- Reports whether an event of a record is less than the one that is kept.
  local function is_less(at, gone, idle, old, old_idle)
    if at ~= old.at then
      return at < old.at
    elseif gone ~= old.gone then
      return old.gone
    end
    return tonumber(idle) < tonumber(old_idle)
  end

  -- The earlier of two times as text, where 0 is none; the first one if either is none.
  local function first_idle(idle, other)
    return other ~= '0' and idle ~= '0' and tonumber(other) < tonumber(idle) and other or idle
  end

  -- Adds what a device asserted to the records. It cannot be idle since later than this time, nor if it is gone.
  local function merge(records, at, text, gone, kind, id, idle)
    local since = text
    idle = gone and '0' or tonumber(idle) > at and text or idle
    for i, old in ipairs(records) do
      if old.id == id then
        local old_idle, begun = string.match(old.line, '\t%d (%d+) (%d+) %d+$')
        since = tonumber(begun) < at and begun or text
        if is_less(at, gone, idle, old, old_idle) then
          idle = first_idle(old_idle, idle)
          if since ~= begun or idle ~= old_idle then
            old.line = string.gsub(old.line, '(\t%d )%d+ %d+ ', '%1' .. idle .. ' ' .. since .. ' ')
          end
          return
        end
        idle = first_idle(idle, old_idle)
        kind = kind ~= '' and kind or string.match(old.line, '%a+')
        table.remove(records, i)
        break
      end
    end
    kind = kind ~= '' and kind or 'other'
    local line = '\n' .. kind .. ' ' .. id .. (gone and '\t1 ' or '\t0 ') .. idle .. ' ' .. since .. ' ' .. text
    insert(records, {at = at, gone = gone, id = id, line = line})
  end

  return merge
end

