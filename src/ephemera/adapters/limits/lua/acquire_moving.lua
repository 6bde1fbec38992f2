-- Takes entries of a moving window if there is room, by the server's clock.
-- KEYS[1]  a list of the moments of the entries in seconds since 1970, the newest first
-- ARGV[1]  the limit
-- ARGV[2]  the length of the window in seconds
-- ARGV[3]  how many entries to take
-- RETURNS  1, or 0 when there is no room
local limit, length, amount = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if amount > limit then return 0 end
local clock = redis.call('TIME')
local oldest = redis.call('LINDEX', KEYS[1], limit - amount)
if oldest and tonumber(oldest) >= clock[1] + clock[2] / 1000000 - length then return 0 end

local now, batch = string.format('%d.%06d', clock[1], clock[2]), {}
for entry = 1, amount do
  batch[#batch + 1] = now
  if #batch == 5000 or entry == amount then -- as many as unpack takes
    redis.call('LPUSH', KEYS[1], unpack(batch))
    batch = {}
  end
end
redis.call('LTRIM', KEYS[1], 0, limit - 1)
redis.call('EXPIRE', KEYS[1], length)
return 1
