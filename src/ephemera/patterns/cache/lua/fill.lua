-- Stores what was loaded if its load still stands: whatever invalidated the entry since has ended the load.
-- KEYS[1]  the entry
-- KEYS[2]  its load
-- ARGV[1]  the token of the load; '' stores in any case and ends any load
-- ARGV[2]  the entry; '' when there shall be none, because its value is not to be cached
-- ARGV[3]  its life in milliseconds
-- ARGV[4]  the channel of those who wait for it
-- RETURNS  1; 0 when it was invalidated or taken over meanwhile, and nothing was written
local stands = ARGV[1] == '' or redis.call('GET', KEYS[2]) == ARGV[1]
if stands then
  if ARGV[2] == '' then
    redis.call('UNLINK', KEYS[1])
  else
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  end
  redis.call('UNLINK', KEYS[2])
end
redis.call('SPUBLISH', ARGV[4], '')
return stands and 1 or 0
