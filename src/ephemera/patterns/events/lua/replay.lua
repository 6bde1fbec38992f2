-- Puts dead letters back on their stream, each once, for the group that could not handle them.
-- KEYS[1]  the stream
-- KEYS[2]  its dead letters
-- ARGV[1]  the layout of an entry (`_v`)
-- ARGV[2]  and following: ids of dead letters
-- RETURNS  the ids of the events that were put back
local stream, dead, added = KEYS[1], KEYS[2], {}
for at = 2, #ARGV do
  local found = redis.call('XRANGE', dead, ARGV[at], ARGV[at])[1]
  if found then
    local letter = {}
    for field = 1, #found[2], 2 do letter[found[2][field]] = found[2][field + 1] end
    if letter.event and letter.group and letter.origin then
      local entry = {'event', letter.event, '_v', ARGV[1], '_for', letter.group, '_origin', letter.origin}
      if letter.key and letter.key ~= '' then
        entry[#entry + 1] = '_key'
        entry[#entry + 1] = letter.key
      end
      added[#added + 1] = redis.call('XADD', stream, '*', unpack(entry))
      redis.call('XDEL', dead, ARGV[at])
    end
  end
end
return added
