-- Adds to counters that are not in SQL yet, all of them or none.
-- KEYS[1]  the shard's pending counters: a hash of amounts
-- KEYS[2]  its sealed ones, on their way to SQL
-- KEYS[3]  its state
-- KEYS[4]  if the addition has an id: the flag that it was made
-- ARGV[1]  how many counters may wait, pending and sealed
-- ARGV[2]  the life of the flag in milliseconds
-- ARGV[3]  and on: the counters, at most a few thousand; then as many amounts
-- RETURNS  1 added; 0 not again, the id was there; -1 there is no room for a further counter
local pending, sealed, state, once = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if once and redis.call('EXISTS', once) == 1 then return 0 end
local waiting, count = redis.call('HLEN', pending), (#ARGV - 2) / 2
local room = ARGV[1] - waiting - redis.call('HLEN', sealed)

-- One read and one write cost the server less than an HINCRBY for each; sums are exact up to 2^53, and so
-- must be what is added, which may be the sum of several.
local found, sums, new, most = redis.call('HMGET', pending, unpack(ARGV, 3, 2 + count)), {}, 0, 2^53 - 1
for place = 1, count do
  local amount = ARGV[2 + count + place] + 0
  local sum = amount
  if found[place] then sum = found[place] + amount else new = new + 1 end
  if sum > most or sum < -most or amount > most or amount < -most then
    return redis.error_reply('ERR the sum of ' .. ARGV[2 + place] .. ' would be beyond 2^53')
  end
  sums[2 * place - 1], sums[2 * place] = ARGV[2 + place], sum
end
if new > 0 and new > room then return -1 end
redis.call('HSET', pending, unpack(sums))
if waiting == 0 then
  local time = redis.call('TIME')
  redis.call('HSET', state, 'since', time[1] * 1000 + math.floor(time[2] / 1000))
end
if once then redis.call('SET', once, '1', 'PX', ARGV[2]) end
return 1
