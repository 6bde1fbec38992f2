-- Restarts the lease of a permit or of a read-write lock for its holder.
-- KEYS, ARGV[1], ARGV[2]  see shared_holders.lua
-- RETURNS  1, or 0 when it is not this holder's (any more)
remove_expired()
local held = redis.call('ZSCORE', holders, token) and redis.call('HGET', grants, token)
if not held then return 0 end
store(token, held, ARGV[2])
return 1
