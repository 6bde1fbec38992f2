-- Marks channels as dirty; the mark of one that is dirty already always changes, however short the time.
-- KEYS[1]  the dirty channels: a sorted set by when they were marked last (microseconds since 1970)
-- ARGV[1]  the life of the set in milliseconds
-- ARGV[2]  and on: the channels
-- RETURNS  how many were not dirty before
local time = redis.call('TIME')
local now, new = time[1] * 1000000 + time[2], 0
for place = 2, #ARGV do
  local before = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[place]) or 0)
  new = new + redis.call('ZADD', KEYS[1], string.format('%.0f', math.max(now, before + 1)), ARGV[place])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return new
