-- Marks channels as dirty; the mark of a channel that is dirty already always grows, even within a microsecond.
-- KEYS[1]  the dirty channels: a sorted set by when they were marked last (microseconds since 1970)
-- ARGV[1]  the TTL of the set in milliseconds
-- ARGV[2]  and on: the channels
-- RETURNS  how many were not dirty before
local time = redis.call('TIME')
local now, new = time[1] * 1000000 + time[2], 0
for i = 2, #ARGV do
  local before = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or 0)
  new = new + redis.call('ZADD', KEYS[1], string.format('%.0f', math.max(now, before + 1)), ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return new
