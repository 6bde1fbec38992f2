-- Replaces a hash and restarts its TTL in one step.
-- KEYS[1]  the key
-- ARGV[1]  the TTL in milliseconds
-- ARGV[2] and on: field, value, ...
-- RETURNS  1
redis.call('UNLINK', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
