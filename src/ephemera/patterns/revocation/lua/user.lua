-- Revokes all tokens issued to a user until now, by the server's clock.
-- KEYS[1]  the user's mark: the instant up to which nothing is valid (microseconds since 1970)
-- ARGV[1]  the lifetime of the mark in milliseconds: longer than that of any token
-- ARGV[2]  an instant instead of now, when a revocation that may have been lost is repeated; or nothing
-- RETURNS  the instant; it never moves back, even when another server's clock was ahead
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local before = tonumber(redis.call('MGET', KEYS[1])[1] or '0') or 0 -- of another type: nothing, and replaced
if not (before < 9007199254740992) then before = 0 end -- a foreign value: 'nan', 'inf' or 1e99
local instant = string.format('%.0f', math.max(tonumber(ARGV[2]) or now, before))
redis.call('SET', KEYS[1], instant, 'PX', ARGV[1])
return instant
