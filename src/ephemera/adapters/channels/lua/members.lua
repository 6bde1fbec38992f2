-- KEYS: 1 the channels of a group, by when they joined.  ARGV: 1 the seconds that a channel stays.
-- RETURNS: the channels whose time has not passed.
local time = redis.call('TIME')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', time[1] + time[2] / 1000000 - ARGV[1])
return redis.call('ZRANGE', KEYS[1], 0, -1)
