-- Returns the instant to issue a token at: by the clock of the user's revocations, and after the last of them.
-- KEYS[1]  the user's mark: the instant up to which nothing is valid (microseconds since 1970)
-- RETURNS  microseconds since 1970
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local before = tonumber(redis.call('MGET', KEYS[1])[1] or '0') or 0 -- of another type: nothing
if not (before < 9007199254740992) then before = 0 end -- a foreign value: 'nan', 'inf' or 1e99
return string.format('%.0f', math.max(now, before + 1))
