-- Lists the sessions of a user, and forgets those that have ended.
-- KEYS[1]  the user's index
-- RETURNS  id, end (milliseconds since 1970), id, end, ..., the one that ends first first
local time = redis.call('TIME')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', time[1] * 1000 + math.floor(time[2] / 1000))
return redis.call('ZRANGE', KEYS[1], '-inf', '(+inf', 'BYSCORE', 'WITHSCORES')
