-- Deletes the state of a graph in a thread, and leaves a mark that refuses late checkpoints. `thread.lua` is loaded
-- before it.
-- KEYS[1]  the thread's hash, or the checkpoint of a job
-- ARGV[1]  to ARGV[3]: fence, worker, lifetime
-- RETURNS  0; the fence of a later worker, as a number, when nothing was changed
local fence = later()
if fence then return fence end
for _, name in ipairs(redis.call('HKEYS', key)) do
  if string.sub(name, 1, 7) == '_graph:' then redis.call('HDEL', key, name) end
end
redis.call('HSET', key, '_graph:deleted', 1)
renew()
return 0
