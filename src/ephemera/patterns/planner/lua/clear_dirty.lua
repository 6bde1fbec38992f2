-- Removes dirty channels that were not marked again since they were read.
-- KEYS[1]  the dirty channels: a sorted set by when they were marked last
-- ARGV[1]  and on: a channel, the mark it had when it was read, the next channel, its mark, ...
-- RETURNS  how many were removed
local removed = 0
for i = 1, #ARGV, 2 do
  local mark = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if mark and tonumber(mark) == tonumber(ARGV[i + 1]) then
    removed = removed + redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return removed
