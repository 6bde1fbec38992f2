-- Makes a worker the one whose checkpoints count, reopens the job's progress if that had ended, and returns what earlier
-- workers saved. The progress pattern's `entry.lua` is loaded before it.
-- KEYS[1]  the job's checkpoint, a hash; `_fence` is the largest fence seen, `_worker` the worker that holds it
-- KEYS[2]  its progress stream, if it may have ended
-- ARGV[1]  the fence issued by SQL
-- ARGV[2]  the worker
-- ARGV[3]  the checkpoint's lifetime in milliseconds
-- ARGV[4]  and following: arguments of `reopen_stream` after the stream
-- RETURNS  all fields and values, flat; or the fence of a later worker, as a number
local held = tonumber(redis.call('HGET', KEYS[1], '_fence') or 0)
-- Fences count claims. What is not a number, or so large, is another program's, and is replaced.
if held and held > tonumber(ARGV[1]) and held < 1e15 then return held end
redis.call('HSET', KEYS[1], '_fence', ARGV[1], '_worker', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if KEYS[2] then reopen_stream(KEYS[2], unpack(ARGV, 4)) end
return redis.call('HGETALL', KEYS[1])
