-- Seals the pending entries of a shard as a numbered batch, or claims the batch that is sealed already.
-- A shard has at most one sealed batch, so its batches are ordered, and SQL only has to remember the last number.
-- KEYS[1]  the shard's state: a hash
-- KEYS[2]  the pending entries: a hash of counters, or a list of records whose front becomes the batch
-- KEYS[3]  for counters: the key that the batch is renamed to
-- ARGV[1]  the flusher's id
-- ARGV[2]  how long no other flusher is given the batch, in milliseconds
-- ARGV[3]  the epoch to use if the shard has no state yet
-- ARGV[4]  the age in milliseconds at which pending entries are due
-- ARGV[5]  the number of entries that are due at any age; for records, the maximum size of a batch
-- RETURNS  {epoch, number, count, 1 if this call sealed it}; 0 another flusher has claimed it; nil nothing is due
local state, pending, sealed = KEYS[1], KEYS[2], KEYS[3]
local flusher, batch_size = ARGV[1], tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local number, count, claimed_by, claimed_until, since, last = unpack(redis.call('HMGET', state,
  'sealed', 'count', 'claimed_by', 'claimed_until', 'since', 'last'))
local fresh = 0

if number then
  if claimed_by ~= flusher and (tonumber(claimed_until) or 0) > now then return 0 end
else
  local size = redis.call(sealed and 'HLEN' or 'LLEN', pending)
  if size == 0 then return false end
  if size < batch_size and now / 1000 - (tonumber(since) or 0) < tonumber(ARGV[4]) then return false end
  -- Larger than every earlier number: by the state, or by the clock where the state was lost.
  number, count, fresh = math.max(now, (tonumber(last) or 0) + 1), size, 1
  if sealed then
    redis.call('RENAME', pending, sealed)
    redis.call('HDEL', state, 'since')
  elseif size > batch_size then
    count = batch_size
  else
    redis.call('HDEL', state, 'since')
  end
  redis.call('HSETNX', state, 'epoch', ARGV[3])
  redis.call('HSET', state, 'sealed', number, 'last', number, 'count', count)
end
redis.call('HSET', state, 'claimed_by', flusher, 'claimed_until', now + ARGV[2] * 1000)
return {redis.call('HGET', state, 'epoch'), tonumber(number), tonumber(count), fresh}
