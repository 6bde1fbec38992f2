-- Reads a session that its user's index lists, and extends both if they slide.
-- KEYS[1]  the session
-- KEYS[2]  the user's index
-- ARGV[1]  the session's id
-- ARGV[2]  the command that reads it: HGETALL or GET
-- ARGV[3]  the TTL in milliseconds below which it is extended; 0 when it does not slide
-- ARGV[4]  the lifetime that it is extended to, in milliseconds
-- ARGV[5]  its absolute end in milliseconds since 1970; 0 without one
-- RETURNS  the reply of the command; nil when there is no such session (any more)
local session, index, id = KEYS[1], KEYS[2], ARGV[1]
local left = redis.call('PTTL', session)
local listed = redis.call('ZSCORE', index, id)
if left == -2 or not listed then
  -- One of the two is gone, by a revocation or an eviction, and so is the session. A key that this index does not
  -- list is left to expire: by id, it may be that of another user whose index shares the slot.
  if listed then redis.call('ZREM', index, id) end
  return false
end
if left < tonumber(ARGV[3]) then
  local time, lifetime, ends = redis.call('TIME'), tonumber(ARGV[4]), tonumber(ARGV[5])
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if ends > 0 then lifetime = math.min(lifetime, ends - now) end
  if lifetime > left then
    redis.call('ZADD', index, 'XX', now + lifetime, id)
    redis.call('PEXPIRE', session, lifetime)
    redis.call('PEXPIRE', index, lifetime, 'GT')
  end
end
return redis.call(ARGV[2], session)
