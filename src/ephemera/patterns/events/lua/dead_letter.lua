-- Moves a pending event to the dead letters, and acknowledges it.
-- KEYS[1]  the stream
-- KEYS[2]  its dead letters
-- ARGV[1]  the group
-- ARGV[2]  the event's id
-- ARGV[3]  how many dead letters are kept
-- ARGV[4]  and following: the fields of the dead letter
-- RETURNS  the dead letter's id, or false if the event is not pending
local stream, group, id = KEYS[1], ARGV[1], ARGV[2]
if not redis.call('XPENDING', stream, group, id, id, 1)[1] then return false end
-- Written before it is acknowledged: a server that is out of memory refuses the write, and nothing is lost.
local letter = redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[3], '*', unpack(ARGV, 4))
redis.call('XACK', stream, group, id)
return letter
