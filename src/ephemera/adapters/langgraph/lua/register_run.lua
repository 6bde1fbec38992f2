-- Adds a thread to the set of a run.
-- KEYS[1]  the run's set of threads
-- ARGV[1]  the thread's id
-- ARGV[2]  the set's lifetime in milliseconds
-- RETURNS  nothing
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
