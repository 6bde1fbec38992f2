-- Drops the lanes of groups that the stream does not have: they were deleted, or lost.
-- KEYS[1]  the stream
-- KEYS[2]  its lanes
-- RETURNS  how many events were in them
local stream, order, known, dropped = KEYS[1], KEYS[2], {}, 0
if redis.call('EXISTS', stream) == 1 then
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    for at = 1, #group, 2 do
      if group[at] == 'name' then known[lanes_of(group[at + 1])] = true end
    end
  end
end
local start = '-'
for _ = 1, 1000 do  -- one step for each group, or for a member that is not ours
  local member = redis.call('ZRANGE', order, start, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if not member then return dropped end
  local lanes = string.match(member, '^%x+:')
  if not lanes then
    dropped = dropped + redis.call('ZREM', order, member)
  else
    start = '(' .. string.sub(lanes, 1, -2) .. ';'  -- the character after ':'
    if not known[lanes] then dropped = dropped + redis.call('ZREMRANGEBYLEX', order, '[' .. lanes, start) end
  end
end
return dropped
