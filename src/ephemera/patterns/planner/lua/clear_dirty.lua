-- Removes dirty channels that were not marked again since they were read; those that were go to the end of the line.
-- KEYS[1]  the dirty channels: a sorted set by when they became dirty (microseconds since 1970)
-- ARGV[1]  and on: a channel, the mark it had when it was read, the next channel, its mark, ...
-- RETURNS  how many were removed
local time = redis.call('TIME')
local now, removed = time[1] * 1000000 + time[2], 0
for i = 1, #ARGV, 2 do
  local mark = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or nil)
  if mark == tonumber(ARGV[i + 1]) then
    removed = removed + redis.call('ZREM', KEYS[1], ARGV[i])
  elseif mark then
    redis.call('ZADD', KEYS[1], string.format('%.0f', math.max(now, mark + 1)), ARGV[i])
  end
end
return removed
