-- Stores a checkpoint with its new values. `thread.lua` is loaded before it.
-- KEYS[1]  the thread's hash, or the checkpoint of a job
-- ARGV[1]  to ARGV[3]: fence, worker, lifetime
-- ARGV[4]  the namespace
-- ARGV[5]  the checkpoint's id
-- ARGV[6]  its parent's id, or empty
-- ARGV[7]  its record, without its number
-- ARGV[8]  its body
-- ARGV[9]  how many checkpoints of the namespace are kept, 0 for all
-- ARGV[10] how many values are new
-- ARGV[11] and following: their fields and values; then the fields of those that must exist
-- RETURNS  0; the fence of a later worker, as a number; `gone` if its parent is missing and was deleted, or
--          is needed for the values of channels; `incomplete` if values are missing that can be sent again
local fence = later()
if fence then return fence end
local namespace, id, parent = ARGV[4], ARGV[5], ARGV[6]
if parent ~= '' and redis.call('HEXISTS', key, '_graph:checkpoint:' .. namespace .. ':' .. parent) == 0 then
  local builds_on_it = cmsgpack.unpack(ARGV[7])[3] > 0
  if builds_on_it or redis.call('HEXISTS', key, '_graph:deleted') == 1 then return 'gone' end
end
local after = 11 + 2 * tonumber(ARGV[10])
for at = after, #ARGV do
  if redis.call('HEXISTS', key, ARGV[at]) == 0 then return 'incomplete' end
end
for at = 11, after - 1, 2 do redis.call('HSET', key, ARGV[at], ARGV[at + 1]) end
local checkpoint, record = namespace .. ':' .. id, cmsgpack.unpack(ARGV[7])
record[5] = redis.pcall('HINCRBY', key, '_graph:puts', 1)
if type(record[5]) ~= 'number' then  -- it is not a number, or the largest
  redis.call('HSET', key, '_graph:puts', 1)
  record[5] = 1
end
redis.call('HSET', key, '_graph:checkpoint:' .. checkpoint, cmsgpack.pack(record), '_graph:body:' .. checkpoint, ARGV[8],
  '_graph:latest:' .. namespace, id)
renew()
if ARGV[9] ~= '0' then
  local found = records(namespace)
  keep_only(found, {[namespace] = newest(found[namespace], tonumber(ARGV[9]))})
end
return 0
