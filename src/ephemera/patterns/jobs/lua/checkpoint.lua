-- Saves part of a job's checkpoint and appends an entry to its progress, unless a later worker has the job. A
-- checkpoint that was lost is created again. The progress pattern's `entry.lua` is loaded before it.
-- KEYS[1]  the job's checkpoint, a hash; `_fence` is the largest fence seen, `_worker` the worker that holds it
-- KEYS[2]  its progress stream, if there is an entry
-- ARGV[1]  the worker's fence
-- ARGV[2]  the worker
-- ARGV[3]  the checkpoint's lifetime in milliseconds
-- ARGV[4]  how many fields are saved
-- ARGV[5]  how many fields are removed
-- ARGV[6]  and following: fields and values to save; fields to remove; arguments of `append_entry` after the stream
-- RETURNS  0, or the fence of a later worker, when nothing was changed
local held = tonumber(redis.call('HGET', KEYS[1], '_fence') or 0)
if held > tonumber(ARGV[1]) then return held end
redis.call('HSET', KEYS[1], '_fence', ARGV[1], '_worker', ARGV[2])
local at = 6
for _ = 1, tonumber(ARGV[4]) do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
  at = at + 2
end
for _ = 1, tonumber(ARGV[5]) do
  redis.call('HDEL', KEYS[1], ARGV[at])
  at = at + 1
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if KEYS[2] then append_entry(KEYS[2], unpack(ARGV, at)) end
return 0
