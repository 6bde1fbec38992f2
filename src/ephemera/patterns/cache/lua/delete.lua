-- Removes an entry and ends its load, so that what is being loaded is not stored.
-- KEYS[1]  the entry
-- KEYS[2]  the token of its load
-- ARGV[1]  the channel that wakes waiting callers
-- RETURNS  1 when there was an entry, otherwise 0
if redis.call('UNLINK', KEYS[2]) == 1 then redis.call('SPUBLISH', ARGV[1], '') end
return redis.call('UNLINK', KEYS[1])
