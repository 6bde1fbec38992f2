-- Adds to a sliding window counter if there is room.
-- KEYS[1]  the count of the previous window
-- KEYS[2]  the count of the current window
-- ARGV[1]  the limit
-- ARGV[2]  the length of a window in milliseconds
-- ARGV[3]  the amount to add
-- RETURNS  1, or 0 when there is no room
local limit, length, amount = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if amount > limit then return 0 end
roll(KEYS[1], KEYS[2], length)
local before, fades = window(KEYS[1])
local count, left = window(KEYS[2])
if math.floor(before * fades / length) + count + amount > limit then return 0 end
if left > 0 then
  redis.call('INCRBY', KEYS[2], amount)
else
  redis.call('SET', KEYS[2], amount, 'PX', 2 * length)
end
return 1
