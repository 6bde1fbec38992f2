-- Records that a user is active, and says whether SQL should be updated too.
-- KEYS[1]  the user's state: a hash with the moments `last_active_at` and `activity_saved_at` (milliseconds since 1970)
-- ARGV[1]  the layout `_v` that the hash must have
-- ARGV[2]  the interval of updates in SQL, in milliseconds
-- RETURNS  1 when SQL is due for an update, or the user's state is not cached here; otherwise 0
if redis.call('HGET', KEYS[1], '_v') ~= ARGV[1] then return 1 end
local time = redis.call('TIME')
local now = math.floor(time[1] * 1000 + time[2] / 1000)
redis.call('HSET', KEYS[1], 'last_active_at', string.format('%.0f', now))
if now - tonumber(redis.call('HGET', KEYS[1], 'activity_saved_at') or 0) < tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'activity_saved_at', string.format('%.0f', now))
return 1
