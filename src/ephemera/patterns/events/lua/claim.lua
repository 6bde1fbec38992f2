-- Claims pending entries by their idle time, in the order of the stream.
-- KEYS[1]  the stream
-- KEYS[2]  its lanes, if it is ordered by key: only the first of each is claimed
-- ARGV[1]  the group
-- ARGV[2]  the consumer that claims them
-- ARGV[3]  the shortest idle time in milliseconds
-- ARGV[4]  the idle time that is too long
-- ARGV[5]  the cursor: where to continue, '-' at first
-- ARGV[6]  how many to claim at most
-- ARGV[7]  how many to examine at most
-- ARGV[8]  the lifetime of the lanes in milliseconds
-- RETURNS  {the next cursor ('-' at the end), {{id, fields, number of deliveries, this one included}}}
local stream, order, group, consumer = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local shortest, too_long, cursor, wanted = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])

local function may_be_handled(id)
  local entry = order and redis.call('XRANGE', stream, id, id)[1]
  return not entry or enter_lane(order, stream, group, id, entry[2], ARGV[8])
end

local examined, entries = redis.call('XPENDING', stream, group, cursor, '+', ARGV[7]), {}
for _, pending in ipairs(examined) do
  if #entries == wanted then return {cursor, entries} end
  cursor = '(' .. pending[1]
  if pending[3] >= shortest and pending[3] < too_long and may_be_handled(pending[1]) then
    -- Nothing is returned for an entry that was deleted from the stream: it is no longer pending.
    local entry = redis.call('XCLAIM', stream, group, consumer, 0, pending[1])[1]
    if entry then entries[#entries + 1] = {entry[1], entry[2], pending[4] + 1} end
  end
end
return {#examined < tonumber(ARGV[7]) and '-' or cursor, entries}
