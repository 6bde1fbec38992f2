-- Makes a worker the one whose checkpoints count, and returns what earlier workers saved.
-- KEYS[1]  the job's checkpoint, a hash; `_fence` is the largest fence seen, `_worker` the worker that holds it
-- ARGV[1]  the fence issued by SQL
-- ARGV[2]  the worker
-- ARGV[3]  the checkpoint's lifetime in milliseconds
-- RETURNS  all fields and values, flat; or the fence of a later worker, as a number
local held = tonumber(redis.call('HGET', KEYS[1], '_fence') or 0)
if held > tonumber(ARGV[1]) then return held end
redis.call('HSET', KEYS[1], '_fence', ARGV[1], '_worker', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.call('HGETALL', KEYS[1])
