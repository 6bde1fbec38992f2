-- Removes consumers that have nothing pending; removing others would lose their pending events.
-- KEYS[1]  the stream
-- ARGV[1]  the group
-- ARGV[2]  a consumer to remove regardless of its idle time; empty for none
-- ARGV[3]  the idle time in milliseconds after which any other is removed
-- RETURNS  how many were removed
local stream, group, removed = KEYS[1], ARGV[1], 0
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local known = {}
  for at = 1, #consumer, 2 do known[consumer[at]] = consumer[at + 1] end
  local gone = known.name == ARGV[2] or known.idle > tonumber(ARGV[3])
  if gone and known.pending == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, known.name)
    removed = removed + 1
  end
end
return removed
