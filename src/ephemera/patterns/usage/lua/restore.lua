-- Rebuilds the live totals from SQL and the pending counters.
-- SQL's amounts include every batch up to a certain number. Later batches are still here, unless one was written and
-- removed in the meantime: then SQL must be read again.
-- KEYS[1]  the shard's pending counters: a hash of amounts
-- KEYS[2]  its sealed counters, which SQL may have already
-- KEYS[3]  its state
-- KEYS[4]  the live totals: a hash
-- ARGV[1]  their TTL in milliseconds
-- ARGV[2]  the epoch and
-- ARGV[3]  number of the last batch in SQL
-- ARGV[4]  1: accept SQL's amounts even if a batch is missing (it was restored from a backup)
-- ARGV[5]  the name of the row: organization and period
-- ARGV[6]  and on: measure, amount in SQL, measure, amount in SQL ...
-- RETURNS  1 the totals exist; 0 read SQL again
local pending, sealed, state, totals = unpack(KEYS)
if redis.call('EXISTS', totals) == 1 then return 1 end
local epoch, acknowledged, number, filling = unpack(redis.call('HMGET', state, 'epoch', 'acknowledged', 'sealed',
  'filling'))
local in_sql = epoch == ARGV[2] and tonumber(ARGV[3]) or 0
if ARGV[4] ~= '1' and (tonumber(acknowledged) or 0) > in_sql then return 0 end
local add_sealed = filling or number and tonumber(number) > in_sql

for i = 6, #ARGV, 2 do
  local field, total = ARGV[5] .. ':' .. ARGV[i], tonumber(ARGV[i + 1])
  total = total + tonumber(redis.call('HGET', pending, field) or 0)
  if add_sealed then total = total + tonumber(redis.call('HGET', sealed, field) or 0) end
  redis.call('HSET', totals, ARGV[i], total)
end
redis.call('PEXPIRE', totals, ARGV[1])
return 1
