-- Gives a sealed batch a number above the one in SQL: the state was lost and the server's clock was set back.
-- KEYS[1]  the shard's state
-- ARGV[1]  the epoch of the batch
-- ARGV[2]  its number
-- ARGV[3]  the last number in SQL
-- RETURNS  1; 0 if it was removed before
local epoch, number = unpack(redis.call('HMGET', KEYS[1], 'epoch', 'sealed'))
if epoch ~= ARGV[1] or number ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'sealed', ARGV[3] + 1, 'last', ARGV[3] + 1)
return 1
