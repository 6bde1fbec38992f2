-- Moves a pending event to the dead letters, and acknowledges it.
-- KEYS[1]  the stream
-- KEYS[2]  its dead letters
-- KEYS[3]  its lanes, if it is ordered by key: the next event of the key is due
-- ARGV[1]  the group
-- ARGV[2]  the consumer
-- ARGV[3]  the event's id
-- ARGV[4]  how many dead letters are kept
-- ARGV[5]  the idle time of an entry that is due
-- ARGV[6]  and following: the fields of the dead letter
-- RETURNS  the dead letter's id, or false if the event is not pending for this consumer any more
local stream, order, group, id = KEYS[1], KEYS[3], ARGV[1], ARGV[3]
if not redis.call('XPENDING', stream, group, id, id, 1, ARGV[2])[1] then return false end
-- Written before it is acknowledged: a server that is out of memory refuses the write, and nothing is lost.
local letter = redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[4], '*', unpack(ARGV, 6))
local entry = order and redis.call('XRANGE', stream, id, id)[1]
redis.call('XACK', stream, group, id)
if entry then make_next_due(lane_of(group, id, entry[2]), order, stream, group, ARGV[5]) end
return letter
