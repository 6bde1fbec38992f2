-- Acknowledges events of a stream that is ordered by key, and delivers the next ones of their keys.
-- KEYS[1]  the stream
-- KEYS[2]  its lanes
-- ARGV[1]  the group
-- ARGV[2]  the consumer; an event that another one has claimed in the meantime is not acknowledged
-- ARGV[3]  'take' to deliver the next ones to this consumer; otherwise they are due for any
-- ARGV[4]  the idle time of an entry that is due
-- ARGV[5]  and following: ids
-- RETURNS  {how many were acknowledged, {{id, fields, number of deliveries}}}
local stream, order, group, consumer = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local finished, entries = 0, {}
for at = 5, #ARGV do
  local id = ARGV[at]
  local entry = redis.call('XRANGE', stream, id, id)[1]
  if redis.call('XPENDING', stream, group, id, id, 1, consumer)[1] then
    finished = finished + redis.call('XACK', stream, group, id)
    local following = entry and make_next_due(lane_of(group, id, entry[2]), order, stream, group, ARGV[4])
    if following and ARGV[3] == 'take' then
      local delivered = redis.call('XCLAIM', stream, group, consumer, 0, following)[1]
      if delivered then entries[#entries + 1] = {delivered[1], delivered[2], 1} end
    end
  end
end
return {finished, entries}
