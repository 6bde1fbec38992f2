-- Logs denials with their end; removes those that are over, and those beyond the limit.
-- KEYS[1]  a sorted set of denials by the moment at which there is room again, in ms since 1970
-- ARGV[1]  its lifetime in milliseconds
-- ARGV[2]  its maximum size; it keeps the denials with the longest wait
-- ARGV[3]  and on: pairs of a moment and a denial, at most a few hundred
-- RETURNS  how many are logged
local denied, time = KEYS[1], redis.call('TIME')
redis.call('ZREMRANGEBYSCORE', denied, '-inf', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('ZADD', denied, unpack(ARGV, 3))
redis.call('ZREMRANGEBYRANK', denied, 0, -1 - ARGV[2])
redis.call('PEXPIRE', denied, ARGV[1])
return redis.call('ZCARD', denied)
