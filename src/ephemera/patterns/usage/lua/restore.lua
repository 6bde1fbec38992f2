-- Makes the live totals anew out of what SQL has and what waits for it.
-- What SQL has is of the moment when it had a certain batch. Whatever was sealed later is still here, unless a batch was
-- written and forgotten meanwhile: then SQL must be read again.
-- KEYS[1]  the shard's pending counters: a hash of amounts
-- KEYS[2]  its sealed ones, on their way to SQL or there already
-- KEYS[3]  its state
-- KEYS[4]  the live totals: a hash
-- ARGV[1]  their life in milliseconds
-- ARGV[2]  the epoch and
-- ARGV[3]  number of the last batch that SQL had
-- ARGV[4]  1: take SQL at its word, also if it should have more (it was restored from a backup)
-- ARGV[5]  the row: organization and period, as counters name it
-- ARGV[6]  and on: measure, what SQL has, measure, what SQL has ...
-- RETURNS  1 they are there; 0 read SQL again
local pending, sealed, state, totals = unpack(KEYS)
if redis.call('EXISTS', totals) == 1 then return 1 end
local epoch, done, number = unpack(redis.call('HMGET', state, 'epoch', 'done', 'sealed'))
local there = epoch == ARGV[2] and tonumber(ARGV[3]) or 0
if ARGV[4] ~= '1' and (tonumber(done) or 0) > there then return 0 end
local on_its_way = number and tonumber(number) > there

for place = 6, #ARGV, 2 do
  local field, total = ARGV[5] .. ':' .. ARGV[place], tonumber(ARGV[place + 1])
  total = total + tonumber(redis.call('HGET', pending, field) or 0)
  if on_its_way then total = total + tonumber(redis.call('HGET', sealed, field) or 0) end
  redis.call('HSET', totals, ARGV[place], total)
end
redis.call('PEXPIRE', totals, ARGV[1])
return 1
