-- Reads a session that its user's index vouches for, and lets both slide, as one step.
-- KEYS[1]  the session
-- KEYS[2]  the user's index
-- ARGV[1]  the session's id
-- ARGV[2]  the command that reads it: HGETALL or GET
-- ARGV[3]  what must be left of its life, in milliseconds, for it to be left alone; 0 when it does not slide
-- ARGV[4]  the life that it slides to, in milliseconds
-- RETURNS  what the command gave; nil when there is no such session (any more)
local session, index, id = KEYS[1], KEYS[2], ARGV[1]
local left = redis.call('PTTL', session)
local vouched = redis.call('ZSCORE', index, id)
if left == -2 or not vouched then
  -- One of the two is gone, by a revocation or an eviction, and so is the session. A key that this index does not
  -- list is left to its lifetime: by id, it may be that of another user whose index falls into the same slot.
  if vouched then redis.call('ZREM', index, id) end
  return false
end
if left < tonumber(ARGV[3]) then
  local time, life = redis.call('TIME'), ARGV[4]
  redis.call('ZADD', index, 'XX', time[1] * 1000 + math.floor(time[2] / 1000) + life, id)
  redis.call('PEXPIRE', session, life)
  redis.call('PEXPIRE', index, life, 'GT')
end
return redis.call(ARGV[2], session)
