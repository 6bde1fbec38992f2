-- Adds members to an index that forgets them when their lifetime has passed.
-- KEYS[1]  the index, a sorted set by expiry
-- ARGV[1]  the lifetime of an entry in milliseconds
-- ARGV[2]  and following: the members
-- RETURNS  nothing
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 2, #ARGV do redis.call('ZADD', KEYS[1], 'GT', now + tonumber(ARGV[1]), ARGV[at]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. now)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
