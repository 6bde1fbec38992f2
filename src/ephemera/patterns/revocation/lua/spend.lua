-- Uses up a token that may be used once.
-- KEYS[1]  the token's mark
-- ARGV[1]  the instant the token expires, in milliseconds since 1970
-- RETURNS  1 when this call used it up, 0 when it was used up or revoked before, -1 when it has expired
local time = redis.call('TIME')
if tonumber(ARGV[1]) <= time[1] * 1000 + time[2] / 1000 then return -1 end
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[1], '1', 'PXAT', ARGV[1])
return 1
