-- Returns the next time of a cache's tag clock, later than any before it even when the server's clock is set back.
-- KEYS[1]  the tag clock: its last time, in microseconds since 1970
-- KEYS[2]  to invalidate a tag: its marker, which is set to the time
-- ARGV[1]  the TTL of both in milliseconds: longer than that of any entry
-- RETURNS  the time
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
-- Beyond 2^53 numbers are not exact; only another program can have written one above 8e15, the year 2223.
if last >= now and last < 8e15 then now = last + 1 end
local text = string.format('%.0f', now)
for _, key in ipairs(KEYS) do redis.call('SET', key, text, 'PX', ARGV[1]) end
return now
