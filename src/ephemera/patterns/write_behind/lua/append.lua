-- Appends records that are not in SQL yet, all of them or none.
-- KEYS[1]  the shard's records: a list, the oldest first
-- KEYS[2]  its state
-- KEYS[3]  with an idempotency key: the flag that the addition was made
-- ARGV[1]  the capacity of the shard in records
-- ARGV[2]  the TTL of the flag in milliseconds
-- ARGV[3]  and on: the records
-- RETURNS  1 appended; 0 appended before with this idempotency key; -1 the backlog is full
local records, state, flag = KEYS[1], KEYS[2], KEYS[3]
if flag and redis.call('EXISTS', flag) == 1 then return 0 end
local size = redis.call('LLEN', records)
if size + #ARGV - 2 > tonumber(ARGV[1]) then return -1 end

for first = 3, #ARGV, 1000 do
  redis.call('RPUSH', records, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
if size == 0 then
  local time = redis.call('TIME')
  redis.call('HSET', state, 'since', time[1] * 1000 + math.floor(time[2] / 1000))
end
if flag then redis.call('SET', flag, '1', 'PX', ARGV[2]) end
return 1
