-- Releases a permit or a read-write lock, or leaves its queue; what is free then is offered to those who wait.
-- KEYS, ARGV[1] to ARGV[5]  see shared_holders.lua
-- ARGV[6]  a waiter's token
-- ARGV[7]  and its channel
-- RETURNS  1, or 0 when it was not this holder's (any more)
remove_expired()
if ARGV[7] then redis.call('ZREM', waiters, ARGV[7]) end
local released = remove(token)
offer_to_waiters()
return released
