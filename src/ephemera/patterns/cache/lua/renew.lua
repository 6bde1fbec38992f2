-- Renews the lease of a load.
-- KEYS[1]  the token of an entry's load
-- ARGV[1]  the caller's token
-- ARGV[2]  the lease in milliseconds
-- RETURNS  1, or 0 when the load is no longer the caller's
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
