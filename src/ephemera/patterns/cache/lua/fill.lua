-- Stores a loaded value if its load is still valid: whatever invalidated the entry since has ended the load.
-- KEYS[1]  the entry
-- KEYS[2]  the token of its load
-- ARGV[1]  the caller's token; '' stores unconditionally and ends any load
-- ARGV[2]  the entry; '' when its value is not to be cached
-- ARGV[3]  the TTL in milliseconds
-- ARGV[4]  the channel that wakes waiting callers
-- RETURNS  1; 0 when the entry was invalidated or the load taken over in the meantime, and nothing was written
local valid = ARGV[1] == '' or redis.call('GET', KEYS[2]) == ARGV[1]
if valid then
  if ARGV[2] == '' then
    redis.call('UNLINK', KEYS[1])
  else
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  end
  redis.call('UNLINK', KEYS[2])
end
redis.call('SPUBLISH', ARGV[4], '')
return valid and 1 or 0
