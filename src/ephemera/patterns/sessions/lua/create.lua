-- Stores a new session and enters it in its user's index, as one step.
-- KEYS[1]  the session
-- KEYS[2]  the user's index: a sorted set of session ids by the instant they end (milliseconds since 1970), and of
--          at most one mark of sign-ins under way, with an infinite score
-- ARGV[1]  the session's id
-- ARGV[2]  its life in milliseconds
-- ARGV[3]  how many sessions the user may have
-- ARGV[4]  the mark of the sign-in that this session ends, or ''
-- ARGV[5]  and on: the command that stores the session, without its key
-- RETURNS  the ids of sessions that had to go, those that would end first; nil when the sign-in was overtaken by a revocation
local session, index, life = KEYS[1], KEYS[2], ARGV[2]
if ARGV[4] ~= '' and not redis.call('ZSCORE', index, ARGV[4]) then return false end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', index, '-inf', now)
local excess = redis.call('ZCOUNT', index, '-inf', '(+inf') + 1 - ARGV[3]
local gone = {}
if excess > 0 then
  for i, part in ipairs(redis.call('ZPOPMIN', index, excess)) do
    if i % 2 == 1 then gone[#gone + 1] = part end
  end
end

redis.call(ARGV[5], session, unpack(ARGV, 6))
redis.call('PEXPIRE', session, life)
redis.call('ZADD', index, now + life, ARGV[1])
if redis.call('PTTL', index) < tonumber(life) then redis.call('PEXPIRE', index, life) end
return gone
