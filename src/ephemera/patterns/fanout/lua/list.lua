-- Lists a user's connections.
-- KEYS[1]  the user's connections: a sorted set of '<server>:<connection>' by deadline (milliseconds since 1970)
-- RETURNS  member, deadline, ... of those whose deadline has not passed
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return redis.call('ZRANGE', KEYS[1], '(' .. now, '+inf', 'BYSCORE', 'WITHSCORES')
