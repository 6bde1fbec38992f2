-- The use of a moving window, by the server's clock.
-- KEYS[1]  a list of the moments of the entries in seconds since 1970, the newest first
-- ARGV[1]  the limit
-- ARGV[2]  the length of the window in seconds
-- RETURNS  {how many entries are in the window, the age of the oldest of them in microseconds}
local clock = redis.call('TIME')
local now, length = clock[1] + clock[2] / 1000000, tonumber(ARGV[2])
-- They are sorted: the first that is too old is found by halves.
local low, high, oldest = 0, math.min(tonumber(ARGV[1]), redis.call('LLEN', KEYS[1])), now
while low < high do
  local middle = math.floor((low + high) / 2)
  local moment = tonumber(redis.call('LINDEX', KEYS[1], middle))
  if moment >= now - length then
    low, oldest = middle + 1, moment
  else
    high = middle
  end
end
return {low, math.floor((now - oldest) * 1000000)}
