-- Requests about random users, for wrk. Text in double braces is filled in for each workload.
--
-- All IDs are one string, so that drawing one costs a substring and two concatenations. Requests about many users are
-- built before the clock starts.

local file = assert(io.open("{{.IDs}}", "rb"))
local ids = file:read("*a")
file:close()
local last = #ids / 16 - 1
local head, tail = {{.Head}}, {{.Tail}}
local users = {{.Users}} -- per request

local function random_user()
  local place = math.random(0, last)
  return ids:sub(place * 16 + 1, place * 16 + 16), place
end

local threads = 0
function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

local prepared = {}
function init()
  math.randomseed({{.Seed}} + number)
  if users > 1 then
    for i = 1, math.floor(200000 / users) do
      local drawn = {}
      for j = 1, users do
        drawn[j] = random_user()
      end
      prepared[i] = head .. table.concat(drawn, '","') .. tail
    end
  end
end

if users > 1 then
  local next = 0
  function request()
    next = next % #prepared + 1
    return prepared[next]
  end
elseif {{.Stamped}} then
  -- A time in milliseconds that increases by one every 16 requests.
  local n, stamped = 0, ""
  function request()
    if n % 16 == 0 then
      stamped = string.format(head, {{.Now}} + n / 16)
    end
    n = n + 1
    return stamped .. (random_user()) .. tail
  end
elseif {{.Numbered}} then
  function request()
    local user, place = random_user()
    return string.format(head, place % {{.Namespaces}}) .. user .. tail
  end
else
  function request()
    return head .. (random_user()) .. tail
  end
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    'bench {"requests":%d,"us":%d,"p50":%d,"p99":%d,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect, e.read, e.write, e.status, e.timeout))
end
