-- Ends a process's own XREAD that waits for many streams, so that it waits for more of them.
-- KEYS[1]  the stream that the process waits for in addition
-- ARGV[1]  its lifetime in milliseconds
-- RETURNS  nothing
redis.call('XADD', KEYS[1], 'MAXLEN', 1, '*', '_v', '1', 'ring', '')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
