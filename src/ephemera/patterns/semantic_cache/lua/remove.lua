-- Removes what is left of a dead answer, unless it is being asked for or was replaced in the meantime.
-- KEYS[1]  the entry
-- KEYS[2]  the token of its load
-- KEYS[3]  its counts
-- ARGV[1]  the entry as it was read; '' when there was none
-- RETURNS  1 when the answer is gone, so that its vector may be deleted; 0 when it is not
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local entry = redis.call('GET', KEYS[1])
if entry and entry ~= ARGV[1] then return 0 end
redis.call('UNLINK', KEYS[1], KEYS[3])
return 1
