-- Seals what waits in a shard as a batch with a number, or gives the batch that is sealed already, to one flusher.
-- A shard has one sealed batch at most, so its batches have an order, and SQL need only remember the last one's number.
-- KEYS[1]  the shard's state: a hash
-- KEYS[2]  what waits: a hash of counters, or a list of records, of which a batch is the first so many
-- KEYS[3]  of counters: where a batch goes
-- ARGV[1]  who asks
-- ARGV[2]  for how many milliseconds nobody else is given the batch
-- ARGV[3]  the epoch of a state that begins here
-- ARGV[4]  the age in milliseconds at which waiting things are due
-- ARGV[5]  the number of them that is due at any age; of records, the most that a batch takes
-- RETURNS  {epoch, number, count, 1 if it was sealed by this call}; 0 another flusher has it; nil nothing is due
local state, waiting, sealed = KEYS[1], KEYS[2], KEYS[3]
local me, many = ARGV[1], tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local number, count, by, claimed, since, last = unpack(redis.call('HMGET', state,
  'sealed', 'count', 'by', 'claimed', 'since', 'last'))
local fresh = 0

if number then
  if by ~= me and (tonumber(claimed) or 0) > now then return 0 end
else
  local size = redis.call(sealed and 'HLEN' or 'LLEN', waiting)
  if size == 0 then return false end
  if size < many and now / 1000 - (tonumber(since) or 0) < tonumber(ARGV[4]) then return false end
  -- Larger than any before it by what is remembered, and by the clock where that was lost.
  number, count, fresh = math.max(now, (tonumber(last) or 0) + 1), size, 1
  if sealed then
    redis.call('RENAME', waiting, sealed)
    redis.call('HDEL', state, 'since')
  elseif size > many then
    count = many
  else
    redis.call('HDEL', state, 'since')
  end
  redis.call('HSETNX', state, 'epoch', ARGV[3])
  redis.call('HSET', state, 'sealed', number, 'last', number, 'count', count)
end
redis.call('HSET', state, 'by', me, 'claimed', now + ARGV[2] * 1000)
return {redis.call('HGET', state, 'epoch'), tonumber(number), tonumber(count), fresh}
