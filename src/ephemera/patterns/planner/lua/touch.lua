-- Notes that a user is active, and says whether SQL should hear of it.
-- KEYS[1]  the user's state: a hash with the moments `last_active_at` and `told_sql_at` (milliseconds since 1970)
-- ARGV[1]  the shape that the hash must have
-- ARGV[2]  how seldom SQL is told, in milliseconds
-- RETURNS  1 when SQL is to be told: it was not for that long, or the user's state is not kept here; otherwise 0
if redis.call('HGET', KEYS[1], '_v') ~= ARGV[1] then return 1 end
local time = redis.call('TIME')
local now = math.floor(time[1] * 1000 + time[2] / 1000)
redis.call('HSET', KEYS[1], 'last_active_at', string.format('%.0f', now))
if now - tonumber(redis.call('HGET', KEYS[1], 'told_sql_at') or 0) < tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'told_sql_at', string.format('%.0f', now))
return 1
