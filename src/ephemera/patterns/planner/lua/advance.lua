-- Moves the high-water marks of a user forward, where they are kept here; a mark never goes back.
-- KEYS[1]  the user's marks: a hash of the seq by channel
-- ARGV[1]  '' to change marks that are there already, or the life in milliseconds to make them if they are not
-- ARGV[2]  and on: a channel, its seq, the next channel, its seq, ...
-- RETURNS  how many marks moved, or -1 when none are kept
local new = redis.call('EXISTS', KEYS[1]) == 0
if new and ARGV[1] == '' then return -1 end
local moved = 0
for place = 2, #ARGV, 2 do
  local before = tonumber(redis.call('HGET', KEYS[1], ARGV[place]) or -1) or -1
  if before < tonumber(ARGV[place + 1]) then
    redis.call('HSET', KEYS[1], ARGV[place], ARGV[place + 1])
    moved = moved + 1
  end
end
if new then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return moved
