-- Stores a new session and adds it to its user's index.
-- KEYS[1]  the session
-- KEYS[2]  the user's index: a sorted set of session ids by expiry (milliseconds since 1970), and of
--          at most one marker of sign-ins in progress, with an infinite score
-- ARGV[1]  the session's id
-- ARGV[2]  its lifetime in milliseconds
-- ARGV[3]  how many sessions the user may have
-- ARGV[4]  the marker of the sign-in that this session completes, or ''
-- ARGV[5]  and on: the command that stores the session, without its key
-- RETURNS  the ids of sessions that were removed to make room, the first to expire; nil when the user was revoked in the meantime
local session, index, lifetime = KEYS[1], KEYS[2], ARGV[2]
if ARGV[4] ~= '' and not redis.call('ZSCORE', index, ARGV[4]) then return false end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', index, '-inf', now)
local excess = redis.call('ZCOUNT', index, '-inf', '(+inf') + 1 - ARGV[3]
local evicted = {}
if excess > 0 then
  for i, part in ipairs(redis.call('ZPOPMIN', index, excess)) do
    if i % 2 == 1 then evicted[#evicted + 1] = part end
  end
end

redis.call(ARGV[5], session, unpack(ARGV, 6))
redis.call('PEXPIRE', session, lifetime)
redis.call('ZADD', index, now + lifetime, ARGV[1])
if redis.call('PTTL', index) < tonumber(lifetime) then redis.call('PEXPIRE', index, lifetime) end
return evicted
