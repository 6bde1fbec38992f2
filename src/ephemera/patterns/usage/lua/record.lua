-- Adds what was used: to what waits for SQL, and to the live totals if they are there; may end a reservation.
-- KEYS[1]  the shard's pending counters: a hash of amounts
-- KEYS[2]  its sealed ones, on their way to SQL
-- KEYS[3]  its state
-- KEYS[4]  the live totals of the organization and period: a hash
-- KEYS[5]  its reservations: a hash of id to 'measure amount ...', and of '=measure' to the sum of them
-- KEYS[6]  when they lapse: a sorted set of ids by milliseconds since 1970
-- KEYS[7]  if the addition has an id: the flag that it was made
-- ARGV[1]  how many counters may wait, pending and sealed
-- ARGV[2]  the life of the flag in milliseconds
-- ARGV[3]  the row: organization and period, as counters name it
-- ARGV[4]  the reservation that ends with this, or ''
-- ARGV[5]  the period's start and
-- ARGV[6]  end in milliseconds since 1970; '' for any time
-- ARGV[7]  and on: measure, amount, measure, amount ...
-- RETURNS  1 added; 0 not again, the id was there; -1 there is no room; {now in milliseconds} it is another period
local pending, sealed, state, totals, held, lapses, once = unpack(KEYS)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[5] ~= '' and (now < tonumber(ARGV[5]) or now >= tonumber(ARGV[6])) then return {now} end

local function end_reservation()
  local reserved = ARGV[4] ~= '' and redis.call('HGET', held, ARGV[4])
  if not reserved then return end
  for measure, amount in string.gmatch(reserved, '(%S+) (%S+)') do
    redis.call('HINCRBY', held, '=' .. measure, -amount)
  end
  redis.call('HDEL', held, ARGV[4])
  redis.call('ZREM', lapses, ARGV[4])
end

if once and redis.call('EXISTS', once) == 1 then
  end_reservation()
  return 0
end
local row = ARGV[3] .. ':'
local waiting = redis.call('HLEN', pending)
local room = ARGV[1] - waiting - redis.call('HLEN', sealed)
if room < (#ARGV - 6) / 2 then
  for place = 7, #ARGV, 2 do
    if redis.call('HEXISTS', pending, row .. ARGV[place]) == 0 then
      room = room - 1
      if room < 0 then return -1 end
    end
  end
end
local live = redis.call('EXISTS', totals) == 1
for place = 7, #ARGV, 2 do  -- nothing is written before all of it can be
  local most = tonumber(redis.call('HGET', pending, row .. ARGV[place]) or 0)
  if live then most = math.max(most, tonumber(redis.call('HGET', totals, ARGV[place]) or 0)) end
  if most + ARGV[place + 1] > 9007199254740991 then
    return redis.error_reply('ERR the total of ' .. ARGV[place] .. ' would be beyond 2^53')
  end
end
for place = 7, #ARGV, 2 do
  redis.call('HINCRBY', pending, row .. ARGV[place], ARGV[place + 1])
  if live then redis.call('HINCRBY', totals, ARGV[place], ARGV[place + 1]) end
end
if waiting == 0 then redis.call('HSET', state, 'since', now) end
end_reservation()
if once then redis.call('SET', once, '1', 'PX', ARGV[2]) end
return 1
