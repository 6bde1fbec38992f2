-- Stores the state of a channel if it is newer than the stored one: a channel never moves back.
-- KEYS[1]  the channel's hash
-- ARGV[1]  its TTL in milliseconds
-- ARGV[2]  its current seq, the field `current_seq`
-- ARGV[3]  and on: all fields and values
-- RETURNS  1, or 0 when the channel has this seq or a later one
local before = tonumber(redis.call('HGET', KEYS[1], 'current_seq') or -1) or -1
if before >= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
