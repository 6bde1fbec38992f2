-- Ends one session if it is this user's: by id, the key may be that of another user whose index shares the slot.
-- KEYS[1]  the session
-- KEYS[2]  the user's index
-- ARGV[1]  the session's id
-- RETURNS  1; 0 when the index did not list it
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
redis.call('UNLINK', KEYS[1])
return 1
