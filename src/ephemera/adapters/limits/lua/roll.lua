-- Functions of scripts on a sliding window counter: the counts of two windows, of which the older fades out.
-- The key of the current window lives for two lengths. When less than one is left, its window is over: it
-- becomes the previous one, and another begins where it ended.
local function roll(previous, current, length)
  local left = redis.call('PTTL', current)
  if left > 0 and left < length then
    redis.call('RENAME', current, previous)
    redis.call('SET', current, 0, 'PX', left + length)
  end
end

-- A key is there until the millisecond after its last: at 0 its window is over.
local function window(key)
  local left = redis.call('PTTL', key)
  if left <= 0 then return 0, 0 end
  return tonumber(redis.call('GET', key)), left
end
