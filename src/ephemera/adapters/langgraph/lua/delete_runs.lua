-- Deletes the checkpoints of some runs, with their writes. `thread.lua` is loaded before it.
-- KEYS[1]  the thread's hash, or the checkpoint of a job
-- ARGV[1]  to ARGV[3]: fence, worker, lifetime
-- ARGV[4]  and following: the runs' ids
-- RETURNS  0; the fence of a later worker, as a number, when nothing was changed
local fence = later()
if fence then return fence end
local runs = {}
for at = 4, #ARGV do runs[ARGV[at]] = true end
local found, keep, any = records(), {}, false
for namespace, ids in pairs(found) do
  keep[namespace] = {}
  for id, record in pairs(ids) do
    if runs[record[2]] then any = true else keep[namespace][id] = true end
  end
end
if any then
  keep_only(found, keep)
  redis.call('HSET', key, '_graph:deleted', 1)
  renew()
end
return 0
