-- The next moment of a cache's tags, later than any before it, also when the server's clock is set back.
-- KEYS[1]  the last moment, in microseconds since 1970
-- KEYS[2]  if a tag is to be ended: its marker, which gets the moment
-- ARGV[1]  the life of both in milliseconds: longer than that of any entry
-- RETURNS  the moment
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
if last >= now then now = last + 1 end
local moment = string.format('%.0f', now)
for _, key in ipairs(KEYS) do redis.call('SET', key, moment, 'PX', ARGV[1]) end
return now
