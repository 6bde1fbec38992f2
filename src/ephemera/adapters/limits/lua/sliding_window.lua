-- The use of a sliding window counter.
-- KEYS[1]  the count of the previous window
-- KEYS[2]  the count of the current window
-- ARGV[1]  the length of a window in milliseconds
-- RETURNS  {previous count, its TTL, current count, its TTL}; in milliseconds
local length = tonumber(ARGV[1])
roll(KEYS[1], KEYS[2], length)
local before, fades = window(KEYS[1])
local count, left = window(KEYS[2])
-- limits takes it modulo the length: in its first millisecond a window would end at once.
return {before, fades, count, math.min(left, 2 * length - 1)}
