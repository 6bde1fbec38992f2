-- Reads new entries, and returns those that may be handled now; the others wait in their lanes.
-- KEYS[1]  the stream
-- KEYS[2]  its lanes
-- ARGV[1]  the group
-- ARGV[2]  the consumer
-- ARGV[3]  how many to return at most
-- ARGV[4]  how many unfinished events the group may have
-- ARGV[5]  the lifetime of the lanes in milliseconds
-- RETURNS  {1: there may be more, 2: there are too many unfinished events, 0: neither; {{id, fields}}}
local stream, order, group, consumer, wanted = KEYS[1], KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[3])
local entries = {}
for _ = 1, 20 do  -- rounds, so that a key with very many events does not occupy the server
  if #entries == wanted then return {1, entries} end
  if redis.call('XPENDING', stream, group)[1] >= tonumber(ARGV[4]) then return {2, entries} end
  local read = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', wanted - #entries, 'STREAMS', stream, '>')
  if not read then return {0, entries} end
  for _, entry in ipairs(read[1][2]) do
    if enter_lane(order, stream, group, entry[1], entry[2], ARGV[5]) then entries[#entries + 1] = entry end
  end
end
return {1, entries}
