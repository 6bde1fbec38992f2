-- Lets a progress stream continue after its terminal entry; `entry.lua` is loaded before it.
-- KEYS[1]  the stream
-- ARGV[1]  its lifetime in milliseconds
-- ARGV[2]  the channel that wakes listeners
-- ARGV[3]  the message to publish there: the stream's key
-- RETURNS  nothing
reopen_stream(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
