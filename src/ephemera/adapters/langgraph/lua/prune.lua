-- Keeps the newest checkpoint of each namespace, and the ancestors that it needs. `thread.lua` is loaded before it.
-- KEYS[1]  the thread's hash, or the checkpoint of a job
-- ARGV[1]  to ARGV[3]: fence, worker, lifetime
-- RETURNS  0; the fence of a later worker, as a number, when nothing was changed
local fence = later()
if fence then return fence end
local found, keep = records(), {}
for namespace, ids in pairs(found) do keep[namespace] = newest(ids, 1) end
keep_only(found, keep)
return 0
