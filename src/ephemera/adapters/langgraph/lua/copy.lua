-- Copies the fields of another thread into an empty one. `thread.lua` is loaded before it.
-- KEYS[1]  the thread's hash
-- ARGV[1]  to ARGV[3]: fence, worker, lifetime
-- ARGV[4]  and following: the fields and values
-- RETURNS  0; or `taken` if the thread has checkpoints, when nothing was changed
if redis.call('HEXISTS', key, '_graph:puts') == 1 then return 'taken' end
for at = 4, #ARGV, 2 do redis.call('HSET', key, ARGV[at], ARGV[at + 1]) end
renew()
return 0
