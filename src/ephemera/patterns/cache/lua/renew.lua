-- Starts the lease of a load anew.
-- KEYS[1]  the load of an entry
-- ARGV[1]  its token
-- ARGV[2]  the lease in milliseconds
-- RETURNS  1, or 0 when it is not this one's (any more)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
