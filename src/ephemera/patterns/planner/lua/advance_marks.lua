-- Advances the high-water marks of a user that are cached here; a mark never moves back.
-- KEYS[1]  the user's marks: a hash of the seq by channel
-- ARGV[1]  '' to change existing marks only, or the TTL in milliseconds to create missing ones
-- ARGV[2]  and on: a channel, its seq, the next channel, its seq, ...
-- RETURNS  how many marks moved, or -1 when none are cached
local new = redis.call('EXISTS', KEYS[1]) == 0
if new and ARGV[1] == '' then return -1 end
local moved = 0
for i = 2, #ARGV, 2 do
  local before = tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or -1) or -1
  if before < tonumber(ARGV[i + 1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    moved = moved + 1
  end
end
if new then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return moved
