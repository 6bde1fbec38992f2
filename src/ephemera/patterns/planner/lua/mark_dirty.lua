-- Marks channels as dirty; the mark of a channel that is dirty already grows by one, so it keeps its place in line.
-- KEYS[1]  the dirty channels: a sorted set by when they became dirty (microseconds since 1970)
-- ARGV[1]  the TTL of the set in milliseconds
-- ARGV[2]  and on: the channels
-- RETURNS  how many were not dirty before
local time = redis.call('TIME')
local now, new = time[1] * 1000000 + time[2], 0
for i = 2, #ARGV do
  local before = redis.call('ZSCORE', KEYS[1], ARGV[i])
  new = new + redis.call('ZADD', KEYS[1], string.format('%.0f', before and before + 1 or now), ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return new
