-- Moves an event that is still pending to the dead letters.
-- KEYS[1]  the stream
-- KEYS[2]  its dead letters
-- ARGV[1]  the group
-- ARGV[2]  the event's id
-- ARGV[3]  how many dead letters are kept
-- ARGV[4]  and on: the fields of the letter
-- RETURNS  the letter's id, or false when the group has the event no more
local stream, group, id = KEYS[1], ARGV[1], ARGV[2]
if not redis.call('XPENDING', stream, group, id, id, 1)[1] then return false end
-- Written before it is acknowledged: a server without memory left refuses the first, and nothing is lost.
local letter = redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[3], '*', unpack(ARGV, 4))
redis.call('XACK', stream, group, id)
return letter
