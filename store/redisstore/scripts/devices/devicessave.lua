-- The last part of devices.lua: records the items, and writes.

local others = {}
for i = 5, past_items - 1, 3 do
  local user = ARGV[i + 1]
  local index, report = indexes[user], ARGV[i + 2]
  local simple = not (replaced or repeated[user] or metas[i] or details_key and not is_used(index, report))
  if not simple or not (report == '' and leave or refresh)(i, user, index) then
    others[#others + 1] = i
  end
end
if #others > 0 then
  record(others)
end
if needs_details then
  settle() -- restarting the feed may have claimed what does not exist yet
  return {ok = 'NEED d'}
end

-- A hash of another type is an error before anything is written.
if metas_key then
  redis.call('HLEN', metas_key)
end
claim()
if #set_metas > 0 then
  redis.call('HSET', metas_key, unpack(set_metas))
end
if metas_key then
  delete_fields(metas_key, delete_metas)
end
if #set > 0 then
  redis.call('HSET', records_key, unpack(set))
end
delete_records(delete)
save_details(set_details)
local created = known and 0 or 1 - redis.call('EXISTS', key)
if #add > 0 then
  redis.call('ZADD', key, unpack(add))
end
for _, change in ipairs(changes) do
  append(unpack(change))
end
save_tip()
if #delete + #delete_metas + #set_details > 0 then
  settle()
end
if #others == 0 then
  return {created, false, false, feed and 0 or 1}
end
local results = {}
for i = 6, past_items, 3 do
  results[#results + 1] = scores[indexes[ARGV[i]]]
end
return {created, results, false, feed and 0 or 1, unreadable}
