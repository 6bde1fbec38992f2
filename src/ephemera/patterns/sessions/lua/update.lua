-- Changes some fields of a session that its user's index lists; never revives one. Follows `json.lua`.
-- KEYS[1]  the session
-- KEYS[2]  the user's index
-- ARGV[1]  the session's id
-- ARGV[2]  the lifetime that it is extended to, in milliseconds; 0 when it does not slide
-- ARGV[3]  its absolute end in milliseconds since 1970; 0 without one
-- ARGV[4]  and on: the change, as `json.lua` takes it
-- RETURNS  1; 0 when there is no such session (any more), and nothing was written
local session, index, id, lifetime, ends = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not redis.call('ZSCORE', index, id) or not change(session, 4) then return 0 end
if lifetime > 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if ends > 0 then lifetime = math.min(lifetime, ends - now) end
  if lifetime > redis.call('PTTL', session) then
    redis.call('ZADD', index, 'XX', now + lifetime, id)
    redis.call('PEXPIRE', session, lifetime)
    redis.call('PEXPIRE', index, lifetime, 'GT')
  end
end
return 1
