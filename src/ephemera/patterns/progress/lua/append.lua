-- Appends an entry to a progress stream and wakes its listeners; `entry.lua` is loaded before it.
-- KEYS[1]  the stream
-- ARGV[1]  the payload
-- ARGV[2]  how many entries the stream keeps
-- ARGV[3]  its lifetime in milliseconds
-- ARGV[4]  the channel that wakes listeners
-- ARGV[5]  the message to publish there: the stream's key
-- ARGV[6]  '1' if nothing follows the entry
-- RETURNS  the entry's id
return append_entry(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
