-- Removes the events that every group has handled: those before the first that is pending or not delivered yet.
-- KEYS[1]  the stream
-- ARGV[1]  how long events are kept in any case, in milliseconds
-- RETURNS  how many were removed; a stream without groups is not trimmed, since a group may still be created
local stream = KEYS[1]
if redis.call('EXISTS', stream) == 0 then return 0 end

-- Both parts of an id have 64 bits, more than a Lua number holds, so they are compared as text of equal length.
local function comes_before(one, other)
  local time, number = string.match(one, '(%d+)-(%d+)')
  local other_time, other_number = string.match(other, '(%d+)-(%d+)')
  if time ~= other_time then
    return #time < #other_time or (#time == #other_time and time < other_time)
  end
  return #number < #other_number or (#number == #other_number and number < other_number)
end

local first
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local known = {}
  for at = 1, #group, 2 do known[group[at]] = group[at + 1] end
  local needed = redis.call('XPENDING', stream, known.name)[2] or known['last-delivered-id']
  if not first or comes_before(needed, first) then first = needed end
end
if first and tonumber(ARGV[1]) > 0 then
  local time = redis.call('TIME')
  local kept = string.format('%.0f-0', math.max(0, time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[1])))
  if comes_before(kept, first) then first = kept end
end
return first and redis.call('XTRIM', stream, 'MINID', first) or 0
