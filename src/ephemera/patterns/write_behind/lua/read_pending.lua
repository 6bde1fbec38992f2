-- Reads what Redis holds of some counters, pending and sealed at the same moment.
-- KEYS[1]  the shard's pending counters: a hash of amounts
-- KEYS[2]  its sealed counters
-- ARGV     the counters
-- RETURNS  the amounts that are pending, then those that are sealed
local found = redis.call('HMGET', KEYS[1], unpack(ARGV))
for _, amount in ipairs(redis.call('HMGET', KEYS[2], unpack(ARGV))) do found[#found + 1] = amount end
return found
