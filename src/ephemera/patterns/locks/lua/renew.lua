-- Restarts the lease of a lock for its holder.
-- KEYS[1]  the lock
-- ARGV[1]  the value of the lock if it is this holder's
-- ARGV[2]  the lease in milliseconds
-- RETURNS  1, or 0 when it is not this holder's (any more)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
