-- Requests about random users, for wrk. What is in double braces is filled in for each contestant.
--
-- All IDs are one string, so that drawing one costs a substring and two concatenations. Requests about
-- many users are made beforehand, before the clock runs.

local file = assert(io.open("{{.IDs}}", "rb"))
local ids = file:read("*a")
file:close()
local last = #ids / 16 - 1
local head, tail = {{.Head}}, {{.Tail}}
local each = {{.Each}} -- users of a request
local spread, middle = {{.Spread}}, {{.Middle}} -- namespaces that the users are spread over, and what follows their number

local function some()
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
  if each > 1 then
    for i = 1, math.floor(200000 / each) do
      local users = {}
      for j = 1, each do
        users[j] = some()
      end
      prepared[i] = head .. table.concat(users, '","') .. tail
    end
  end
end

if each > 1 then
  local next = 0
  function request()
    next = next % #prepared + 1
    return prepared[next]
  end
elseif {{.From}} > 0 then
  -- A time in milliseconds that goes on by one every few requests.
  local n, stamped = 0, ""
  function request()
    if n % 16 == 0 then
      stamped = head .. string.format("%d/", {{.From}} + n / 16)
    end
    n = n + 1
    return stamped .. (some()) .. tail
  end
elseif spread > 0 then
  function request()
    local user, place = some()
    return head .. place % spread .. middle .. user .. tail
  end
else
  function request()
    return head .. (some()) .. tail
  end
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    'bench {"requests":%d,"us":%d,"p50":%d,"p99":%d,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect, e.read, e.write, e.status, e.timeout))
end
