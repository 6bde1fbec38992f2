-- Ends a load that stored nothing; after a failure nobody loads for a while, as long as there is an entry to serve.
-- KEYS[1]  the entry
-- KEYS[2]  its load
-- ARGV[1]  the token of the load
-- ARGV[2]  milliseconds in which nobody shall try again, 0 for none
-- ARGV[3]  the channel of those who wait for it
-- RETURNS  1; 0 when the load was not this one's (any more)
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
if ARGV[2] ~= '0' and redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('SET', KEYS[2], '-', 'PX', ARGV[2])
else
  redis.call('UNLINK', KEYS[2])
end
redis.call('SPUBLISH', ARGV[3], '')
return 1
