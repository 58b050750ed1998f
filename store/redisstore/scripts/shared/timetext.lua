-- Formatting is slow, and the times of a batch are often equal.
local time_texts = {[0] = '0'}
local function time_text(time)
  local text = time_texts[time]
  if not text then
    text = string.format('%.0f', time)
    time_texts[time] = text
  end
  return text
end

