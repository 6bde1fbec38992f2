-- Forgets a sealed batch that is in SQL, and no other.
-- KEYS[1]  the shard's state
-- KEYS[2]  the batch of counters; or the list of records that it is the front of
-- ARGV[1]  the epoch of the batch
-- ARGV[2]  its number
-- ARGV[3]  hash or list
-- RETURNS  1; 0 it is not there any more
local state, batch = KEYS[1], KEYS[2]
local epoch, number, count = unpack(redis.call('HMGET', state, 'epoch', 'sealed', 'count'))
if epoch ~= ARGV[1] or number ~= ARGV[2] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[3] == 'hash' then
  redis.call('UNLINK', batch)
else
  redis.call('LTRIM', batch, count, -1)
  if redis.call('EXISTS', batch) == 1 then  -- came while the batch was under way
    redis.call('HSETNX', state, 'since', now)
  end
end
-- When the last flush ended and what it brought, for whoever looks at the shard.
redis.call('HSET', state, 'done', number, 'flushed', now, 'brought', count)
redis.call('HDEL', state, 'sealed', 'count', 'by', 'claimed')
return 1
