-- Adds to counters that are not in SQL yet, all of them or none.
-- KEYS[1]  the shard's pending counters: a hash of amounts
-- KEYS[2]  its sealed counters
-- KEYS[3]  its state
-- KEYS[4]  with an idempotency key: the flag that the addition was made
-- ARGV[1]  the capacity of the shard in counters, pending and sealed
-- ARGV[2]  the TTL of the flag in milliseconds
-- ARGV[3]  and on: the counters, at most a few thousand; then as many amounts
-- RETURNS  1 added; 0 added before with this idempotency key; -1 the backlog is full
local pending, sealed, state, flag = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if flag and redis.call('EXISTS', flag) == 1 then return 0 end
local size, count = redis.call('HLEN', pending), (#ARGV - 2) / 2
local room = ARGV[1] - size - redis.call('HLEN', sealed)

-- One read and one write cost the server less than an HINCRBY per counter. Sums are exact up to 2^53; the same
-- limit holds for the amounts, each of which may be the sum of several additions.
local found, sums, new, limit = redis.call('HMGET', pending, unpack(ARGV, 3, 2 + count)), {}, 0, 2^53 - 1
for i = 1, count do
  local amount = ARGV[2 + count + i] + 0
  local sum = amount
  if found[i] then sum = found[i] + amount else new = new + 1 end
  if sum > limit or sum < -limit or amount > limit or amount < -limit then
    return redis.error_reply('ERR the sum of ' .. ARGV[2 + i] .. ' would exceed 2^53')
  end
  sums[2 * i - 1], sums[2 * i] = ARGV[2 + i], sum
end
if new > 0 and new > room then return -1 end
redis.call('HSET', pending, unpack(sums))
if size == 0 then
  local time = redis.call('TIME')
  redis.call('HSET', state, 'since', time[1] * 1000 + math.floor(time[2] / 1000))
end
if flag then redis.call('SET', flag, '1', 'PX', ARGV[2]) end
return 1
