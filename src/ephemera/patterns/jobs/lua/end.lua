-- Empties the checkpoint of a job that has ended, appends the last entry to its progress, and wakes those who wait for its
-- result. The fence is kept for the checkpoint's lifetime, so that a late worker is refused here too. The progress pattern's
-- `entry.lua` is loaded before it.
-- KEYS[1]  the job's checkpoint, a hash; `_fence` is the largest fence seen
-- KEYS[2]  its progress stream, if there is an entry
-- ARGV[1]  the fence that the job ended with
-- ARGV[2]  the checkpoint's lifetime in milliseconds
-- ARGV[3]  the channel that names jobs that have ended
-- ARGV[4]  the job's id
-- ARGV[5]  and following: arguments of `append_entry` after the stream
-- RETURNS  0, or the fence of a later worker, when nothing was changed
local held = tonumber(redis.call('HGET', KEYS[1], '_fence') or 0)
if held > tonumber(ARGV[1]) then return held end
redis.call('UNLINK', KEYS[1])
redis.call('HSET', KEYS[1], '_fence', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if KEYS[2] then append_entry(KEYS[2], unpack(ARGV, 5)) end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 0
