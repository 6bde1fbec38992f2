-- Counts a hit beside its entry, with the entry's TTL; does nothing when the entry is gone.
-- KEYS[1]  the entry
-- KEYS[2]  its counts, a hash
-- ARGV[1]  what to count: 'exact' or 'semantic'
-- ARGV[2]  tokens that the hit saved
-- RETURNS  1, or 0 when there is no entry
local left = redis.call('PTTL', KEYS[1])
if left <= 0 then return 0 end
redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
redis.call('HINCRBY', KEYS[2], 'tokens_saved', ARGV[2])
redis.call('PEXPIRE', KEYS[2], left)
return 1
