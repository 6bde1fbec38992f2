-- Adds events to a stream, all of them or none.
-- KEYS[1]  the stream
-- ARGV[1]  the layout of an entry (`_v`)
-- ARGV[2]  'ordered' if each event is followed by its key, otherwise empty
-- ARGV[3]  and following: the events
-- RETURNS  their ids
local stream, layout, ids = KEYS[1], ARGV[1], {}
if ARGV[2] == 'ordered' then
  for at = 3, #ARGV, 2 do
    ids[#ids + 1] = redis.call('XADD', stream, '*', 'event', ARGV[at], '_v', layout, '_key', ARGV[at + 1])
  end
  return ids
end
for at = 3, #ARGV do
  ids[at - 2] = redis.call('XADD', stream, '*', 'event', ARGV[at], '_v', layout)
end
return ids
