-- Adds events that a group has handled to their stream again, for this group only.
-- KEYS[1]  the stream
-- ARGV[1]  the layout of an entry (`_v`)
-- ARGV[2]  the group
-- ARGV[3]  the first id, or '(' and the one before it
-- ARGV[4]  the last id
-- ARGV[5]  how many entries to examine at most
-- ARGV[6]  what is appended to the first ids, to have SQL guards take the events for new ones
-- RETURNS  {the next value of ARGV[3], false at the end; how many events were added}
local stream, group, following, added = KEYS[1], ARGV[2], false, 0
for _, entry in ipairs(redis.call('XRANGE', stream, ARGV[3], ARGV[4], 'COUNT', ARGV[5])) do
  local id, known = entry[1], {}
  following = '(' .. id
  for at = 1, #entry[2], 2 do known[entry[2][at]] = entry[2][at + 1] end
  -- A replayed event is passed over, since its original counts; a pending one will be handled anyway.
  if known.event and not known._for and not redis.call('XPENDING', stream, group, id, id, 1)[1] then
    local copy = {'event', known.event, '_v', ARGV[1], '_for', group, '_origin', id .. ARGV[6]}
    if known._key then
      copy[#copy + 1] = '_key'
      copy[#copy + 1] = known._key
    end
    redis.call('XADD', stream, '*', unpack(copy))
    added = added + 1
  end
end
return {following, added}
