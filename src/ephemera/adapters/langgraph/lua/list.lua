-- Lists all checkpoints of a thread. `thread.lua` is loaded before it.
-- KEYS[1]  the thread's hash, or the checkpoint of a job
-- ARGV[1]  to ARGV[3]: fence, worker, lifetime
-- RETURNS  for each, unordered, <namespace>:<id> and the number of its put; or the fence of a later worker, as a number
local fence = later()
if fence then return fence end
local listed = {}
for namespace, ids in pairs(records()) do
  for id, record in pairs(ids) do listed[#listed + 1] = {namespace .. ':' .. id, record[5]} end
end
return listed
