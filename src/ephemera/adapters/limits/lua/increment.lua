-- Adds to the counter of a fixed window, which begins with its first hit.
-- KEYS[1]  the counter
-- ARGV[1]  the length of the window in seconds
-- ARGV[2]  the amount to add
-- RETURNS  the count
local count = redis.call('INCRBY', KEYS[1], ARGV[2])
if count == tonumber(ARGV[2]) or redis.call('TTL', KEYS[1]) < 0 then
  redis.call('EXPIRE', KEYS[1], ARGV[1])
end
return count
