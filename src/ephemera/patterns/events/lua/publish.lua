-- Adds events to a stream, all of them or none.
-- KEYS[1]  the stream
-- ARGV[1]  the shape of an entry
-- ARGV[2]  and following: the events
-- RETURNS  their ids
local stream, shape, ids = KEYS[1], ARGV[1], {}
for at = 2, #ARGV do
  ids[at - 1] = redis.call('XADD', stream, '*', 'event', ARGV[at], '_v', shape)
end
return ids
