-- Lists the sessions of a user, and removes those that have expired.
-- KEYS[1]  the user's index
-- RETURNS  id, expiry (milliseconds since 1970), id, expiry, ..., in order of expiry
local time = redis.call('TIME')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', time[1] * 1000 + math.floor(time[2] / 1000))
return redis.call('ZRANGE', KEYS[1], '-inf', '(+inf', 'BYSCORE', 'WITHSCORES')
