-- Appends records that are not in SQL yet, all of them or none.
-- KEYS[1]  the shard's records: a list, the oldest first
-- KEYS[2]  its state
-- KEYS[3]  if the addition has an id: the flag that it was made
-- ARGV[1]  how many records may wait
-- ARGV[2]  the life of the flag in milliseconds
-- ARGV[3]  and on: the records
-- RETURNS  1 appended; 0 not again, the id was there; -1 there is no room
local records, state, once = KEYS[1], KEYS[2], KEYS[3]
if once and redis.call('EXISTS', once) == 1 then return 0 end
local waiting = redis.call('LLEN', records)
if waiting + #ARGV - 2 > tonumber(ARGV[1]) then return -1 end

for first = 3, #ARGV, 1000 do
  redis.call('RPUSH', records, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
if waiting == 0 then
  local time = redis.call('TIME')
  redis.call('HSET', state, 'since', time[1] * 1000 + math.floor(time[2] / 1000))
end
if once then redis.call('SET', once, '1', 'PX', ARGV[2]) end
return 1
