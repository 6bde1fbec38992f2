-- KEYS: 1 the channels of a group, by when they joined.  ARGV: 1 a channel, 2 the seconds that it stays.
-- RETURNS: nothing of interest.
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], string.format('%.6f', time[1] + time[2] / 1000000), ARGV[1])
return redis.call('PEXPIRE', KEYS[1], ARGV[2] * 1000)
