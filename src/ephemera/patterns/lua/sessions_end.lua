-- Ends one session.
-- KEYS[1]  the session
-- KEYS[2]  the user's index
-- ARGV[1]  the session's id
-- RETURNS  1; 0 when the index knew it no more
redis.call('UNLINK', KEYS[1])
return redis.call('ZREM', KEYS[2], ARGV[1])
