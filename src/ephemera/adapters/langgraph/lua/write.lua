-- Stores pending writes of a task, until the next checkpoint. `thread.lua` is loaded before it.
-- KEYS[1]  the thread's hash, or the checkpoint of a job
-- ARGV[1]  to ARGV[3]: fence, worker, lifetime
-- ARGV[4]  the field of the list of writes of their checkpoint
-- ARGV[5]  and following, for each: its field, its value, and 1 if it replaces an existing one, 0 if that stays
-- RETURNS  0; the fence of a later worker, as a number, when nothing was changed
local fence = later()
if fence then return fence end
local listed = redis.call('HGET', key, ARGV[4]) or ''
for at = 5, #ARGV, 3 do
  local new = redis.call('HEXISTS', key, ARGV[at]) == 0
  if new then listed = listed .. ARGV[at] .. '\n' end
  if new or ARGV[at + 2] == '1' then redis.call('HSET', key, ARGV[at], ARGV[at + 1]) end
end
redis.call('HSET', key, ARGV[4], listed)
renew()
return 0
