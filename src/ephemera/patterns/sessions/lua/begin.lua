-- Marks that a sign-in is in progress, so that it notices a revocation before its end; sign-ins share the marker.
-- KEYS[1]  the user's index
-- ARGV[1]  a fresh marker, which looks unlike any session id
-- ARGV[2]  how long a sign-in may take, in milliseconds
-- RETURNS  the marker, which a revocation removes
local index = KEYS[1]
local marker = redis.call('ZRANGE', index, 'inf', 'inf', 'BYSCORE')[1]
if marker and not string.find(marker, '^~[%w_-]+$') then -- another program wrote it
  redis.call('ZREM', index, marker)
  marker = nil
end
if not marker then
  marker = ARGV[1]
  redis.call('ZADD', index, 'inf', marker)
end
if redis.call('PTTL', index) < tonumber(ARGV[2]) then redis.call('PEXPIRE', index, ARGV[2]) end
return marker
