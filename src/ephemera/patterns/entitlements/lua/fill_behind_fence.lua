-- Stores a loaded value in place of its fence; when the fence is gone, the value has changed since.
-- KEYS[1]  the key of a cached value
-- ARGV[1]  'hash' or 'value'
-- ARGV[2]  the fence that was there before the load
-- ARGV[3]  the value's TTL in milliseconds
-- ARGV[4]  and on: the command that stores the value, without its key
-- RETURNS  1; 0 when the fence is not there, and nothing was written
local held = ARGV[1] == 'hash' and redis.call('HGET', KEYS[1], '_fence') or ARGV[1] == 'value' and redis.call('GET', KEYS[1])
if held ~= ARGV[2] then return 0 end
redis.call('UNLINK', KEYS[1])
redis.call(ARGV[4], KEYS[1], unpack(ARGV, 5))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
