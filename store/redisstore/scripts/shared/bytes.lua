-- What compares texts; it is prepended to the scripts that do.

-- Bytewise a < b. The < of Lua follows the locale.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

