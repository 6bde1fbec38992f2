-- Removes a sealed batch that is in SQL, and no other.
-- KEYS[1]  the shard's state
-- KEYS[2]  the sealed counters; or the list of records whose front is the batch
-- ARGV[1]  the epoch of the batch
-- ARGV[2]  its number
-- ARGV[3]  hash or list
-- RETURNS  1; 0 if it was removed before
local state, batch = KEYS[1], KEYS[2]
local epoch, number, count = unpack(redis.call('HMGET', state, 'epoch', 'sealed', 'count'))
if epoch ~= ARGV[1] or number ~= ARGV[2] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[3] == 'hash' then
  redis.call('UNLINK', batch)
else
  redis.call('LTRIM', batch, count, -1)
  if redis.call('EXISTS', batch) == 1 then  -- appended while the batch was written
    redis.call('HSETNX', state, 'since', now)
  end
end
-- The last two are for inspection: when the last flush ended, and how many entries it moved.
redis.call('HSET', state, 'acknowledged', number, 'flushed_at', now, 'flushed_count', count)
redis.call('HDEL', state, 'sealed', 'count', 'claimed_by', 'claimed_until')
return 1
