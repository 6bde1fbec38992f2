-- Adds usage to the pending counters, and to the live totals if they exist; may end a reservation.
-- KEYS[1]  the shard's pending counters: a hash of amounts
-- KEYS[2]  its sealed counters
-- KEYS[3]  its state
-- KEYS[4]  the live totals of the organization and period: a hash
-- KEYS[5]  its reservations: a hash of id to 'measure amount ...', and of '=measure' to the sum of them
-- KEYS[6]  when they expire: a sorted set of ids by milliseconds since 1970
-- KEYS[7]  with an idempotency key: the flag that the addition was made
-- ARGV[1]  the capacity of the shard in counters, pending and sealed
-- ARGV[2]  the TTL of the flag in milliseconds
-- ARGV[3]  the name of the row: organization and period
-- ARGV[4]  the reservation that ends with this, or ''
-- ARGV[5]  the period's start and
-- ARGV[6]  end in milliseconds since 1970; '' for any time
-- ARGV[7]  and on: measure, amount, measure, amount ...
-- RETURNS  1 added; 0 added before with this idempotency key; -1 the backlog is full; {now in milliseconds} the
--          period is not the current one
local pending, sealed, state, totals, held, expiries, flag = unpack(KEYS)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[5] ~= '' and (now < tonumber(ARGV[5]) or now >= tonumber(ARGV[6])) then return {now} end

local function end_reservation()
  local reserved = ARGV[4] ~= '' and redis.pcall('HGET', held, ARGV[4])
  if type(reserved) ~= 'string' then return end
  for measure, amount in string.gmatch(reserved, '(%S+) (%d+)') do
    redis.pcall('HINCRBY', held, '=' .. measure, -amount)  -- a sum that is no number is not ours
  end
  redis.call('HDEL', held, ARGV[4])
  redis.pcall('ZREM', expiries, ARGV[4])
end

if flag and redis.call('EXISTS', flag) == 1 then
  end_reservation()
  return 0
end
local row = ARGV[3] .. ':'
local size = redis.call('HLEN', pending)
local room = ARGV[1] - size - redis.call('HLEN', sealed)
if room < (#ARGV - 6) / 2 then
  for i = 7, #ARGV, 2 do
    if redis.call('HEXISTS', pending, row .. ARGV[i]) == 0 then
      room = room - 1
      if room < 0 then return -1 end
    end
  end
end
-- The number that HINCRBY would change; nil for anything else, which we did not write.
local function whole(key, field)
  local text = redis.call('HGET', key, field) or '0'
  return #text <= 17 and string.find(text, '^%-?%d+$') and tonumber(text) or nil
end
local fields = redis.pcall('HLEN', totals)
local has_totals = type(fields) == 'number' and fields > 0  -- of another type: the next reader rebuilds them
for i = 7, #ARGV, 2 do  -- check everything before the first write
  local largest = whole(pending, row .. ARGV[i])
  if not largest then return redis.error_reply('ERR a pending counter of ' .. ARGV[i] .. ' is not a number') end
  local total = has_totals and whole(totals, ARGV[i])
  if total then
    largest = math.max(largest, total)
  elseif has_totals then  -- the next reader rebuilds them from SQL
    redis.call('DEL', totals)
    has_totals = false
  end
  if largest + ARGV[i + 1] > 9007199254740991 then
    return redis.error_reply('ERR the total of ' .. ARGV[i] .. ' would exceed 2^53')
  end
end
for i = 7, #ARGV, 2 do
  redis.call('HINCRBY', pending, row .. ARGV[i], ARGV[i + 1])
  if has_totals then redis.call('HINCRBY', totals, ARGV[i], ARGV[i + 1]) end
end
if size == 0 then redis.call('HSET', state, 'since', now) end
end_reservation()
if flag then redis.call('SET', flag, '1', 'PX', ARGV[2]) end
return 1
