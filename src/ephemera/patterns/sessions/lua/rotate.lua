-- Replaces the id of a session; its expiry stays the same.
-- KEYS[1]  the session
-- KEYS[2]  the user's index
-- KEYS[3]  the session under its new id
-- ARGV[1]  the old id
-- ARGV[2]  the new id
-- RETURNS  1; 0 when there is no such session (any more), and nothing was written
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not ends or redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('RENAME', KEYS[1], KEYS[3])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[2], ends, ARGV[2])
return 1
