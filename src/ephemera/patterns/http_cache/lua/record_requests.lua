-- Adds to the record of a day's most requested pages, and keeps only the top ones.
-- KEYS[1]  the record, a sorted set of keys by number of requests
-- ARGV[1]  its TTL in milliseconds, from its first entry
-- ARGV[2]  how many keys are kept
-- ARGV[3]  and so on in pairs: number of requests, key
-- RETURNS  how many keys there are
for at = 3, #ARGV, 2 do redis.call('ZINCRBY', KEYS[1], ARGV[at], ARGV[at + 1]) end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1], 'NX')
return redis.call('ZCARD', KEYS[1])
