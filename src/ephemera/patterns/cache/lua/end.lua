-- Ends a load that stored nothing; after a failure loads back off, as long as there is an entry to serve.
-- KEYS[1]  the entry
-- KEYS[2]  the token of its load
-- ARGV[1]  the caller's token
-- ARGV[2]  the backoff in milliseconds, 0 for none
-- ARGV[3]  the channel that wakes waiting callers
-- RETURNS  1; 0 when the load is no longer the caller's
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
if ARGV[2] ~= '0' and redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('SET', KEYS[2], '-', 'PX', ARGV[2])
else
  redis.call('UNLINK', KEYS[2])
end
redis.call('SPUBLISH', ARGV[3], '')
return 1
